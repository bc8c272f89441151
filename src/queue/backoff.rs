//! Back-off arithmetic, and nothing else.

use super::serial::Serial;
use super::settings::Backoff;

/// The wait before retry `n` (1 for the first) of a job, in ms:
/// `min(max, base * 2^(n-1))` less up to a quarter. The reduction spreads jobs that failed
/// together; it is derived from the job's arrival number and `n`, so every node computes the same.
#[must_use]
pub fn wait(backoff: Backoff, arrival: Serial, n: u32) -> u64 {
    let doublings = n.saturating_sub(1);
    let full = if backoff.base == 0 || doublings <= backoff.base.leading_zeros() {
        // No bit is shifted out: the base has that many leading zeros (and 0 stays 0).
        backoff.base.checked_shl(doublings).unwrap_or(0)
    } else {
        u64::MAX
    };
    let full = full.min(backoff.max);
    let spread = (full / 4).saturating_add(1);
    let reduction = mix(arrival.0 ^ u64::from(n).rotate_left(48)).checked_rem(spread).unwrap_or(0);
    full.saturating_sub(reduction)
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
/// generators", 2014): every input bit changes about half of the output bits.
const fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_within_its_bounds_whatever_n() {
        let interesting = [0, 1, 2, 3, 4, 5, 1_000, 1 << 31, (1 << 53) - 1, u64::MAX];
        for base in interesting {
            for max in interesting {
                for n in (0..200).chain([u32::MAX - 1, u32::MAX]) {
                    let full = (u128::from(base) << n.saturating_sub(1).min(64)).min(u128::from(max)) as u64;
                    let wait = wait(Backoff { base, max }, Serial(u64::from(n) * 77), n);
                    assert!(wait <= full, "{base} {max} {n}");
                    assert!(wait >= full - full / 4, "{base} {max} {n}: {wait} of {full}");
                }
            }
        }
    }

    #[test]
    fn spreads_jobs_that_failed_together() {
        let backoff = Backoff { base: 1_000, max: 1_000 };
        let mut waits: Vec<u64> = (0..200).map(|n| wait(backoff, Serial(n), 1)).collect();
        waits.sort_unstable();
        waits.dedup();
        assert!(waits.len() > 100, "{} different waits", waits.len());
        assert!(waits[0] < 800 && waits[waits.len() - 1] > 950);
    }
}
