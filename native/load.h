// Weights repacked when a model is loaded: in parallel, and without holding the file's bytes beside the tiles.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "pool.h"
#include "product.h"

namespace strata {

// Anonymous memory of its own, zeroed by the system when it is first touched; large pages where the system has them.
class Arena {
public:
    explicit Arena(std::size_t bytes);
    ~Arena();
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;
    std::uint8_t* data() const { return data_; }

private:
    std::uint8_t* data_;
    std::size_t bytes_;
};

struct Repacking {
    Matrix w;             // `raw` is read
    std::uint8_t* tiles;  // repacked_bytes
    // The read-only file map that raw lies in (null: none): its pages are given back as soon as they are repacked.
    const std::uint8_t *map_begin, *map_end;
};

// Repack all of them. A thread writes the tiles that it computes in a dense product, so that with several memory nodes
// they lie where they are used. Files are read ahead, one run of tiles before the one that is repacked.
void repack_all(Pool& pool, const std::vector<Repacking>& list);

// Rows of w are going to be gathered here and there: the system should not read their neighbours too.
void expect_gathers(const Matrix& w);

}  // namespace strata
