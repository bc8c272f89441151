//! Serials: the numbers that ids and tokens are made of.
//!
//! A serial is `milliseconds << 20 | sequence`, taken from one counter that only grows, over all
//! queues of a server. It is shown as `<unix-ms>-<sequence>`. When more than a million are taken
//! in one millisecond, or when the wall clock steps back, the counter runs ahead of the clock: it
//! stays unique and increasing, which is all that is promised.

use std::fmt;

use super::digits;

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
    pub fn parse(text: &[u8]) -> Option<Self> {
        // Behind zeros, so that eight digits at a time can be read.
        let mut room = [b'0'; 24];
        room.get_mut(24usize.checked_sub(text.len())?..)?.copy_from_slice(text);
        let tail = u64::from_le_bytes(*room.last_chunk()?);
        let dash = digits::last(tail, b'-')?;
        let (ms, sequence) =
            text.split_at_checked(text.len().checked_sub(8usize.checked_sub(dash as usize)?)?)?;
        if !is_canonical(ms) || !is_canonical(sequence.get(1..)?) {
            return None;
        }
        let (high, low) = room.get(dash as usize..)?.split_first_chunk()?;
        let high = digits::read(u64::from_le_bytes(*high))?;
        let low = digits::read(u64::from_le_bytes(*low.first_chunk()?))?;
        let ms = high.saturating_mul(digits::LIMIT).saturating_add(low);
        let sequence = digits::read(digits::zeros_before(tail, dash.saturating_add(1)))?;
        (ms <= u64::MAX >> SEQUENCE_BITS && sequence <= SEQUENCE_MASK)
            .then_some(Self(ms << SEQUENCE_BITS | sequence))
    }

    /// Writes the shown form into `buffer` without allocating.
    #[must_use]
    pub fn write(self, buffer: &mut [u8; SHOWN_BYTES_MAX]) -> &[u8] {
        let (high, of_high) = digits::show(self.millis() / digits::LIMIT);
        let (low, of_low) = digits::show(self.millis() % digits::LIMIT);
        let (sequence, of_sequence) = digits::show(self.0 & SEQUENCE_MASK);
        // Of 0 one digit is shown.
        let blank = if of_high < 8 { of_high } else { of_low.min(7).saturating_add(8) };
        let of_sequence = of_sequence.min(7);
        let [ms @ .., dash, _, _, _, _, _, _, _, _] = buffer;
        let (eights, _) = ms.as_chunks_mut();
        if let [first, second] = eights {
            (*first, *second) = (high.to_le_bytes(), low.to_le_bytes());
        }
        *dash = b'-';
        if let Some(last) = buffer.last_chunk_mut() {
            *last = (sequence >> of_sequence.saturating_mul(8)).to_le_bytes();
        }
        buffer.get(blank as usize..SHOWN_BYTES_MAX.saturating_sub(of_sequence as usize)).unwrap_or_default()
    }
}

/// Bytes in which every serial is shown: 16 digits, a dash and 8 digits, of which those not needed are left out.
pub const SHOWN_BYTES_MAX: usize = 25;
const _: () =
    assert!(u64::MAX >> SEQUENCE_BITS < digits::LIMIT * digits::LIMIT && SEQUENCE_MASK < digits::LIMIT);

/// Whether so many bytes may be the digits of a number: it begins with 0 only if it is 0, and milliseconds have 14.
const fn is_canonical(digits: &[u8]) -> bool {
    match digits {
        [] => false,
        [_] => true,
        [first, ..] => *first != b'0' && digits.len() <= 14,
    }
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
        let powers = |most: u32| (0..most).map(|power| 10u64.pow(power)).flat_map(|power| [power - 1, power]);
        for (ms, sequence) in powers(14).flat_map(|ms| powers(7).map(move |sequence| (ms, sequence))) {
            let text = format!("{ms}-{sequence}");
            assert_eq!(Serial::parse(text.as_bytes()).map(|serial| serial.to_string()), Some(text));
        }
        for value in [0, 1, SEQUENCE_MASK, SEQUENCE_MASK + 1, u64::MAX, 1_700_000_000_000 << 20 | 7] {
            let serial = Serial(value);
            let text = format!("{}-{}", serial.millis(), value & SEQUENCE_MASK);
            assert_eq!((Serial::parse(text.as_bytes()), serial.to_string()), (Some(serial), text));
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
            "1000000000000000000001-1",
            "0000000000001-1",
            "1-00000001",
            "1-10000000",
            "1-123456789",
            "1700000000000",
            "170000000000-",
            "1700000o00000-1",
            "1700000000000-1\0",
            "170000000°000-1",
        ] {
            assert_eq!(Serial::parse(text.as_bytes()), None, "{text}");
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
