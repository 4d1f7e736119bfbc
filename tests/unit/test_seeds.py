"""Seeds are hashes of what they are for."""

from teamtune.seeds import derive_seed


def test_a_seed_is_a_hash_of_six_bytes():
    # printf "(0, 'board-3', 'planner', 1, '/2')" | b2sum -l 48
    assert derive_seed(0, "board-3", "planner", 1, "/2") == 0x211DA7BE7B40


def test_each_part_and_the_order_matter():
    seeds = [derive_seed(*parts) for parts in [(0, 1), (1, 0), (0, "1"), (0,), (0, 1, "")]]
    assert len(set(seeds)) == 5 and all(0 <= seed < 2**48 for seed in seeds)
