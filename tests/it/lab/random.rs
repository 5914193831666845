//! Random numbers from a seed that is printed, so that a run can be asked for again.

use std::env;
use std::time::{SystemTime, UNIX_EPOCH};

/// `SplitMix64`.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to `bound`, exclusive.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        u32::try_from(self.next() % u64::from(bound)).expect("less than a `u32`")
    }

    /// True once in `n` times.
    pub(crate) fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }
}

/// `WALGATE_TEST_SEED`, or one from the clock; printed, to be given again.
pub(crate) fn seed() -> u64 {
    let seed = env::var("WALGATE_TEST_SEED").map_or_else(
        |_| SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_secs() ^ u64::from(now.subsec_nanos())),
        |text| text.parse().expect("WALGATE_TEST_SEED is a number"),
    );
    eprintln!("replay with WALGATE_TEST_SEED={seed}");
    seed
}
