"""The training model computes what the reference implementation of `qwen4_exp` computes."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.16")

from training.config import ModelConfig, ngram_head_sizes, ngram_multipliers  # noqa: E402
from training.delta import gated_delta_rule  # noqa: E402
from training.model import DemoModel, Notes  # noqa: E402

TOY = ModelConfig(
    vocab_size=96,
    hidden_size=32,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    rotary_dim=8,
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    linear_head_dim=8,
    num_experts=8,
    num_experts_per_tok=3,
    moe_intermediate_size=16,
    shared_expert_intermediate_size=24,
    hc_count=4,
    hc_lowrank=8,
    indexer_n_heads=8,
    indexer_head_dim=8,
    indexer_budget=16,
    ple_embed_dim=32,
    heads_per_ngram=2,
    ngram_vocab_size_base=53,
    max_position_embeddings=256,
    eos_token_id=0,
    pad_token_id=0,
)


def randomised(config: ModelConfig) -> DemoModel:
    torch.manual_seed(5)
    model = DemoModel(config).float().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.15)
    return model


def reference(model: DemoModel) -> "transformers.PreTrainedModel":
    from transformers.models.qwen4_exp import Qwen4ExpForCausalLM, Qwen4ExpTextConfig

    peer = Qwen4ExpForCausalLM(Qwen4ExpTextConfig(**model.config.transformers_settings())).float().eval()
    weights = {k: v for k, v in model.state_dict().items() if not k.startswith("mtp.")}
    missing, unexpected = peer.load_state_dict(weights, strict=False)
    assert not unexpected
    hash_facts = ("layer_multipliers", "ngram_heads_vocab_sizes", "ngram_heads_offsets")
    assert all(name.endswith(("lm_head.weight", *hash_facts)) for name in missing)
    peer.lm_head.weight = peer.model.embed_tokens.weight
    return peer


@pytest.mark.parametrize("time", [11, 90])
def test_logits_equal_the_reference(time: int) -> None:
    """Below and beyond the indexer's budget, with an end of document inside."""
    model = randomised(TOY)
    tokens = torch.randint(1, TOY.vocab_size, (2, time))
    tokens[0, time // 2] = TOY.eos_token_id
    with torch.no_grad():
        ours, theirs = model(tokens, sparse=True), reference(model)(input_ids=tokens).logits
    error = (ours - theirs).square().mean().sqrt() / theirs.square().mean().sqrt()
    assert error < 1e-4


def test_ngram_facts_equal_the_reference() -> None:
    embedding = reference(randomised(TOY)).model.layers[1].ple.ple_embedding
    assert embedding.head_vocab_sizes == ngram_head_sizes(TOY)
    assert embedding.layer_multipliers.tolist() == ngram_multipliers(TOY)


def test_delta_rule_equals_the_recurrence() -> None:
    torch.manual_seed(1)
    q, k = torch.randn(2, 2, 130, 2, 16).unbind()
    v = torch.randn(2, 130, 4, 16)
    g, beta = -2 * torch.rand(2, 130, 4), torch.rand(2, 130, 4)
    state, expected = torch.zeros(2, 4, 16, 16), []
    unit_q, unit_k = (
        x.repeat_interleave(2, 2) / (x.square().sum(-1, True) + 1e-6).sqrt().repeat_interleave(2, 2) for x in (q, k)
    )
    for t in range(130):
        state = state * g[:, t, :, None, None].exp()
        missing = v[:, t] - torch.einsum("bhkv,bhk->bhv", state, unit_k[:, t])
        state = state + torch.einsum("bhk,bhv->bhkv", unit_k[:, t], missing * beta[:, t, :, None])
        expected.append(torch.einsum("bhkv,bhk->bhv", state, unit_q[:, t] / 4))
    torch.testing.assert_close(gated_delta_rule(q, k, v, g, beta), torch.stack(expected, 1), atol=1e-5, rtol=1e-4)


def test_draft_steps_equal_drafting_one_chain_at_a_time() -> None:
    """Step 2 over the whole row equals a row whose last position alone is fed the first step's own streams."""
    model = randomised(TOY)
    tokens = torch.randint(1, TOY.vocab_size, (1, 14))
    with torch.no_grad():
        embedded, streams, table = model.streams(tokens, Notes())
        second = model.mtp.steps(2, embedded, streams, tokens, table, Notes())[1]
        layer, position = model.mtp.layers[0], 9
        first = layer(model.mtp.enter(embedded, streams), tokens, table, Notes(), past=[])
        entering = model.mtp.enter(embedded, streams)
        entering[:, position] = model.mtp.enter(embedded, first)[:, position]
        single = model.mtp.hyper_connection_mixer(layer(entering, tokens, table, Notes(), past=[]))[1]
    torch.testing.assert_close(second[:, position], single[:, position], atol=1e-5, rtol=1e-4)
