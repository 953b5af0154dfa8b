// Which instruction set computes: found once from the processor, or forced by name. Every one gives the same bits.
#pragma once
#include <string>
#include <vector>

namespace strata {

// Names of the instruction sets that this build has and this machine can run, slowest first: portable, avx2,
// avx512vnni (AVX-512 F, BW, DQ, VL, VNNI, VBMI), amx (that and AMX int8 for many rows). On a machine with AMX this asks
// the system for the permission to use tile registers; without it amx is not among them.
std::vector<std::string> available_isas();

// Choose one by name ("auto": the best). Throws std::invalid_argument with one sentence that names those available.
// Not while ops run.
void select_isa(const std::string& name);

// The one in use.
std::string selected_isa();

// Clear flush-to-zero and denormals-are-zero of the calling thread: every thread that computes calls it when it starts.
void clear_flush_modes();

}  // namespace strata
