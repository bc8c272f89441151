//! Eight decimal digits at a time, as the bytes of one word: the first digit in the lowest byte.

/// The digit 0 in each byte.
const ZEROS: u64 = u64::from_le_bytes([b'0'; 8]);

/// Numbers below this one have at most eight digits.
pub(super) const LIMIT: u64 = 100_000_000;

/// Eight digits, with zeros in front, of a number below [`LIMIT`]; and how many of them are zeros in front: 8 for 0.
#[inline]
pub(super) const fn show(value: u64) -> (u64, u32) {
    // Cut in two again and again: fours into halves, pairs into quarters, digits into bytes. Each half is divided by
    // multiplying: 10,486 / 2^20 is near enough to 1 / 100 below 10,000, and 103 / 2^10 to 1 / 10 below 100.
    let fours = (value / 10_000) | (value % 10_000) << 32;
    let hundreds = (fours.wrapping_mul(10_486) >> 20) & 0x0000_007f_0000_007f;
    let pairs = hundreds | fours.wrapping_sub(hundreds.wrapping_mul(100)) << 16;
    let tens = (pairs.wrapping_mul(103) >> 10) & 0x000f_000f_000f_000f;
    let digits = tens | pairs.wrapping_sub(tens.wrapping_mul(10)) << 8;
    (digits | ZEROS, digits.trailing_zeros() / 8)
}

/// The number that eight digits show. `None`: they are not all digits.
#[inline]
pub(super) const fn read(text: u64) -> Option<u64> {
    let digits = text ^ ZEROS;
    // Above 9, adding 6 reaches the upper half of a byte.
    if (digits | digits.wrapping_add(u64::from_le_bytes([6; 8]))) & u64::from_le_bytes([0xf0; 8]) != 0 {
        return None;
    }
    // Neighbours are put together, the first of them ten, a hundred and ten thousand times: into each second byte, ...
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul(100).wrapping_add(pairs >> 16) & 0x0000_ffff_0000_ffff;
    Some(fours.wrapping_mul(10_000).wrapping_add(fours >> 32) & 0xffff_ffff)
}

/// `text` with the digit 0 in place of its first `count` bytes, at most 7.
#[inline]
pub(super) const fn zeros_before(text: u64, count: u32) -> u64 {
    let kept = u64::MAX << (count & 7).wrapping_mul(8);
    text & kept | ZEROS & !kept
}

/// Where in `text` the last such byte is, 0 to 7.
#[inline]
pub(super) const fn last(text: u64, byte: u8) -> Option<u32> {
    let others = text ^ u64::from_le_bytes([byte; 8]);
    // The upper bit of each byte that is 0, and of no other: adding to the lower seven bits carries into no neighbour.
    let lower = u64::from_le_bytes([0x7f; 8]);
    let found = !((others & lower).wrapping_add(lower) | others | lower);
    7u32.checked_sub(found.leading_zeros() / 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_digits_are_read_at_once_and_nothing_else_is() {
        for text in ["00000000", "99999999", "12345678", "80000001"] {
            for place in 0..8 {
                for byte in 0..=u8::MAX {
                    let mut text: [u8; 8] = text.as_bytes().try_into().unwrap();
                    text[place] = byte;
                    let digits = text.iter().all(u8::is_ascii_digit);
                    let wanted = digits.then(|| std::str::from_utf8(&text).unwrap().parse().unwrap());
                    assert_eq!(read(u64::from_le_bytes(text)), wanted, "{text:?}");
                }
            }
        }
    }

    #[test]
    fn eight_digits_are_shown_as_they_are_written_elsewhere() {
        // Every number of four digits in either half, and what lies around powers of ten.
        let halves = (0..10_000).flat_map(|four| [four, four * 10_000, 9_999 * 10_000 + four]);
        let powers = (0..9).flat_map(|power| [10u64.pow(power) - 1, 10u64.pow(power)]);
        for value in halves.chain(powers).filter(|&value| value < LIMIT) {
            let (digits, blank) = show(value);
            let wanted = format!("{value:08}");
            assert_eq!(std::str::from_utf8(&digits.to_le_bytes()), Ok(&*wanted));
            let zeros = wanted.bytes().take_while(|&digit| digit == b'0').count();
            assert_eq!(blank as usize, zeros, "{value}");
            assert_eq!(read(digits), Some(value));
        }
    }

    #[test]
    fn the_last_byte_is_found_beside_its_neighbours() {
        for place in 0..8 {
            // One less, one more and with the upper bit set: what a carry would be taken for.
            for other in [b'-' - 1, b'-' + 1, b'-' | 0x80, 0, 0xff] {
                let mut text = [other; 8];
                assert_eq!(last(u64::from_le_bytes(text), b'-'), None);
                text[place] = b'-';
                assert_eq!(last(u64::from_le_bytes(text), b'-'), Some(place as u32));
                text[0] = b'-';
                assert_eq!(last(u64::from_le_bytes(text), b'-'), Some(place as u32));
            }
        }
        assert_eq!(zeros_before(u64::from_le_bytes(*b"1234-567"), 5).to_le_bytes(), *b"00000567");
    }
}
