//! Which partition a key goes to: the one that Java's default partitioner takes, so that topics can be shared and
//! joined with those of Java producers.

/// The partition of a key, of `partitions`: murmur2 of its bytes, without its sign.
pub(super) fn partition(key: &[u8], partitions: i32) -> i32 {
    let hash = i32::from_ne_bytes((murmur2(key) & 0x7FFF_FFFF).to_ne_bytes());
    hash.checked_rem(partitions).unwrap_or_default()
}

/// The 32-bit `MurmurHash2` of `org.apache.kafka.common.utils.Utils`, seed included.
fn murmur2(data: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_B28C;
    const M: u32 = 0x5BD1_E995;
    const R: u32 = 24;
    let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
    let (words, tail) = data.as_chunks::<4>();
    let mut hash = SEED ^ length;
    for word in words {
        let word = u32::from_le_bytes(*word).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ (word ^ (word >> R)).wrapping_mul(M);
    }
    if !tail.is_empty() {
        hash ^= tail.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of `UtilsTest.testMurmur2`.
    #[test]
    fn the_hash_is_that_of_the_java_client() {
        let check = |key: &str, expect: i32| assert_eq!(murmur2(key.as_bytes()), expect.cast_unsigned(), "{key}");
        check("21", -973_932_308);
        check("foobar", -790_332_482);
        check("a-little-bit-long-string", -985_981_536);
        check("a-little-bit-longer-string", -1_486_304_829);
        check("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971);
        check("abc", 479_470_107);
    }

    #[test]
    fn a_partition_is_one_of_those_there_are() {
        for n in 0..1_000_u32 {
            assert!((0..6).contains(&partition(&n.to_le_bytes(), 6)));
        }
        assert_eq!(partition(b"", 1), 0);
    }
}
