//! Serials: the numbers that ids and tokens are made of.
//!
//! A serial is `milliseconds << 20 | sequence`, taken from one counter that only grows, over all
//! queues of a server. It is shown as `<unix-ms>-<sequence>`. When more than a million are taken
//! in one millisecond, or when the wall clock steps back, the counter runs ahead of the clock: it
//! stays unique and increasing, which is all that is promised.

use std::fmt;

/// Bits of the sequence part.
const SEQUENCE_BITS: u32 = 20;
const SEQUENCE_MASK: u64 = (1 << SEQUENCE_BITS) - 1;

/// A number from the server-wide counter: the arrival number of a job, its id if the client gave
/// none, or the token of a delivery. 0 is never taken and stands for "none".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Serial(pub u64);

impl Serial {
    /// Stands for "no serial".
    pub const NONE: Self = Self(0);
    /// The largest serial of which the milliseconds can be shown and parsed.
    pub const MAX: Self = Self(u64::MAX);

    /// No serial is larger: that of twice the largest clock, as the counter may run ahead of it.
    pub const LIMIT: Self = Self::first_of(super::limits::CLOCK_MS_MAX * 2);

    /// The first serial of the millisecond `wall` (Unix ms).
    #[must_use]
    pub const fn first_of(wall: u64) -> Self {
        // Walls are at most INSTANT_MS_MAX, but only 44 bits fit: clamp instead of wrapping.
        let ms = if wall > u64::MAX >> SEQUENCE_BITS { u64::MAX >> SEQUENCE_BITS } else { wall };
        Self(ms << SEQUENCE_BITS)
    }

    /// The serial after this one, not before the first of the millisecond `wall`.
    #[must_use]
    pub fn next(self, wall: u64) -> Self {
        Self(self.0.saturating_add(1)).max(Self::first_of(wall))
    }

    /// The Unix ms in it.
    #[must_use]
    pub const fn millis(self) -> u64 {
        self.0 >> SEQUENCE_BITS
    }

    /// Reads the shown form. `None` unless it is exactly what [`fmt::Display`] writes.
    #[must_use]
    #[inline]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (ms, rest) = canonical(text)?;
        let (sequence, rest) = canonical(rest.strip_prefix(b"-")?)?;
        (rest.is_empty() && ms <= u64::MAX >> SEQUENCE_BITS && sequence <= SEQUENCE_MASK)
            .then_some(Self(ms << SEQUENCE_BITS | sequence))
    }

    /// Writes the shown form into `buffer` without allocating.
    #[must_use]
    pub fn write(self, buffer: &mut [u8; SHOWN_BYTES_MAX]) -> &[u8] {
        let digits = put_digits(buffer, self.0 & SEQUENCE_MASK);
        let (front, _) = buffer.split_at_mut(SHOWN_BYTES_MAX.saturating_sub(digits));
        let Some((dash, front)) = front.split_last_mut() else { return &[] };
        *dash = b'-';
        let start = front.len().saturating_sub(put_digits(front, self.millis()));
        buffer.get(start..).unwrap_or_default()
    }
}

/// Bytes in which every shown serial fits: 14 digits, a dash, 7 digits, and one more, as digits are written
/// in pairs.
pub const SHOWN_BYTES_MAX: usize = 23;
const _: () = assert!(u64::MAX >> SEQUENCE_BITS < 100_000_000_000_000 && SEQUENCE_MASK < 10_000_000);

/// All numbers of two digits, as dividing by 100 at once takes half of the divisions.
const PAIRS: &[u8; 200] = b"\
      0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546474849\
      5051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899";

/// Writes `value` in decimal at the end of `room`; how many digits that took.
#[inline]
fn put_digits(room: &mut [u8], mut value: u64) -> usize {
    let mut digits = 0usize;
    let (pairs, _) = PAIRS.as_chunks::<2>();
    let (_, room) = room.as_rchunks_mut::<2>();
    for place in room.iter_mut().rev() {
        if let Some(&pair) = pairs.get((value % 100) as usize) {
            *place = pair;
        }
        value /= 100;
        digits = digits.saturating_add(2);
        if value == 0 {
            break;
        }
    }
    // The first pair may begin with a zero.
    let first = room.len().checked_sub(digits / 2).and_then(|at| room.get(at)?.first());
    if first == Some(&b'0') { digits.saturating_sub(1) } else { digits }
}

/// The value of eight digits at once, the first of them in the lowest byte. `None`: they are not all digits.
#[inline]
const fn eight_digits(text: u64) -> Option<u64> {
    let digits = text ^ u64::from_le_bytes([b'0'; 8]);
    // Above 9, adding 6 reaches the upper half of a byte.
    if (digits | digits.wrapping_add(u64::from_le_bytes([6; 8]))) & u64::from_le_bytes([0xf0; 8]) != 0 {
        return None;
    }
    // Neighbours are put together, the first of them ten, a hundred and ten thousand times: into each second byte, ...
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = pairs.wrapping_mul(100).wrapping_add(pairs >> 16) & 0x0000_ffff_0000_ffff;
    Some(fours.wrapping_mul(10_000).wrapping_add(fours >> 32) & 0xffff_ffff)
}

/// The decimal number at the front, without sign or leading zeros and of at most 19 digits, which
/// fit; and what is behind it.
#[inline]
fn canonical(text: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0u64;
    let mut rest = text;
    if let Some((eight, behind)) = text.split_first_chunk()
        && let Some(eight) = eight_digits(u64::from_le_bytes(*eight))
    {
        (value, rest) = (eight, behind);
    }
    while let Some((byte, behind)) = rest.split_first() {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
        rest = behind;
    }
    let digits = text.len().saturating_sub(rest.len());
    let is_canonical = (1..=19).contains(&digits) && (digits == 1 || text.first() != Some(&b'0'));
    is_canonical.then_some((value, rest))
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut buffer = [0; SHOWN_BYTES_MAX];
        f.write_str(std::str::from_utf8(self.write(&mut buffer)).map_err(|_| fmt::Error)?)
    }
}

/// How a client names a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Id<'a> {
    /// The id that the queue gave: the job's own serial.
    Serial(Serial),
    /// The id that the client gave at enqueue.
    Custom(&'a [u8]),
}

impl<'a> Id<'a> {
    /// Any bytes name a job, if only one that cannot exist.
    #[must_use]
    pub fn parse(text: &'a [u8]) -> Self {
        Serial::parse(text).map_or(Self::Custom(text), Self::Serial)
    }

    /// Whether a client may give `text` as an id: not empty, not longer than the limit, and not
    /// of the form `<digits>-<digits>`, which is the queue's own.
    #[must_use]
    pub fn is_allowed(text: &[u8]) -> bool {
        let all_digits = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
        let own_form = text.iter().position(|&byte| byte == b'-').is_some_and(|dash| {
            all_digits(text.get(..dash).unwrap_or_default())
                && all_digits(text.get(dash.saturating_add(1)..).unwrap_or_default())
        });
        !text.is_empty() && text.len() <= super::limits::NAME_BYTES_MAX && !own_form
    }

    /// The id as bytes; `buffer` is used for a serial.
    #[must_use]
    pub fn write<'b>(self, buffer: &'b mut [u8; SHOWN_BYTES_MAX]) -> &'b [u8]
    where
        'a: 'b,
    {
        match self {
            Self::Serial(serial) => serial.write(buffer),
            Self::Custom(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_form_is_parsed_back_and_nothing_else_is() {
        for value in [0, 1, SEQUENCE_MASK, SEQUENCE_MASK + 1, u64::MAX, 1_700_000_000_000 << 20 | 7] {
            let serial = Serial(value);
            assert_eq!(Serial::parse(serial.to_string().as_bytes()), Some(serial), "{serial}");
        }
        for text in [
            "",
            "-",
            "1-",
            "-1",
            "01-1",
            "1-01",
            "1-1-1",
            "+1-1",
            " 1-1",
            "1-1048576",
            "17592186044416-0",
            "99999999999999999999-0",
        ] {
            assert_eq!(Serial::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn eight_digits_are_read_at_once_and_nothing_else_is() {
        for text in ["00000000", "99999999", "12345678", "80000001"] {
            for place in 0..8 {
                for byte in 0..=u8::MAX {
                    let mut text: [u8; 8] = text.as_bytes().try_into().unwrap();
                    text[place] = byte;
                    let digits = text.iter().all(u8::is_ascii_digit);
                    let wanted = digits.then(|| std::str::from_utf8(&text).unwrap().parse().unwrap());
                    assert_eq!(eight_digits(u64::from_le_bytes(text)), wanted, "{text:?}");
                }
            }
        }
    }

    #[test]
    fn own_form_is_refused_as_a_custom_id() {
        for text in ["1-1", "01-1", "99999999999999999999999-1", ""] {
            assert!(!Id::is_allowed(text.as_bytes()), "{text}");
        }
        for text in ["a", "1-", "-1", "1-1-1", "1", "\0", "order-17"] {
            assert!(Id::is_allowed(text.as_bytes()), "{text}");
        }
        assert!(Id::is_allowed(&[b'x'; 512]) && !Id::is_allowed(&[b'x'; 513]));
    }

    #[test]
    fn serials_grow_whatever_the_clock_does() {
        let mut serial = Serial::NONE;
        for wall in [5, 5, 9, 3, 0, u64::MAX, 1] {
            let next = serial.next(wall);
            assert!(next > serial);
            serial = next;
            if wall == u64::MAX {
                serial = Serial::first_of(7_000);
            }
        }
    }
}
