//! Numbers, durations and names for people.

/// A count with separators: `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len().saturating_add(6));
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && digits.len().saturating_sub(index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count in at most six characters: `12,345`, `1.23M`.
pub fn short(number: u64) -> String {
    if number < 100_000 { count(number) } else { scaled(number, 1000, ["k", "M", "G", "T", "P", "E"]) }
}

/// Bytes: `512 B`, `1.21 MiB`.
pub fn bytes(number: u64) -> String {
    if number < 1024 {
        format!("{number} B")
    } else {
        scaled(number, 1024, [" KiB", " MiB", " GiB", " TiB", " PiB", " EiB"])
    }
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn scaled(number: u64, step: u64, units: [&str; 6]) -> String {
    let (mut value, step) = (number as f64, step as f64);
    let mut shown_unit = "";
    for unit in units {
        // What would be shown as 1000 belongs to the next unit.
        if value < 999.5 {
            break;
        }
        value /= step;
        shown_unit = unit;
    }
    if value < 9.995 {
        format!("{value:.2}{shown_unit}")
    } else if value < 99.95 {
        format!("{value:.1}{shown_unit}")
    } else {
        format!("{value:.0}{shown_unit}")
    }
}

/// A duration in ms, in two units at most: `250 ms`, `3.2 s`, `5 m 12 s`, `2 d 3 h`.
pub fn duration(ms: u64) -> String {
    let (seconds, minutes, hours, days) = (ms / 1000, ms / 60_000, ms / 3_600_000, ms / 86_400_000);
    let pair = |big: u64, unit: &str, small: u64, small_unit: &str| {
        if small == 0 { format!("{big} {unit}") } else { format!("{big} {unit} {small} {small_unit}") }
    };
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..60_000 => format!("{seconds}.{} s", ms % 1000 / 100),
        60_000..3_600_000 => pair(minutes, "m", seconds % 60, "s"),
        3_600_000..86_400_000 => pair(hours, "h", minutes % 60, "m"),
        _ => pair(days, "d", hours % 24, "h"),
    }
}

/// A duration in ms in its largest unit alone, in six characters at most.
pub fn age(ms: u64) -> String {
    match ms {
        0..60_000 => duration(ms),
        60_000..3_600_000 => format!("{} m", ms / 60_000),
        3_600_000..86_400_000 => format!("{} h", ms / 3_600_000),
        _ => format!("{} d", (ms / 86_400_000).min(9999)),
    }
}

/// A rate per second.
pub fn rate(per_second: f64) -> String {
    if per_second == 0.0 {
        "0".to_string()
    } else if per_second < 9.95 {
        format!("{per_second:.1}")
    } else {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is positive, and saturates"
        )]
        let whole = per_second.round() as u64;
        short(whole)
    }
}

/// The time until an instant, both Unix ms; `due` when it has come.
pub fn until(instant: u64, now: u64) -> String {
    if instant <= now { "due".to_string() } else { format!("in {}", duration(instant.saturating_sub(now))) }
}

/// The time since an instant, both Unix ms.
pub fn since(instant: u64, now: u64) -> String {
    format!("{} ago", duration(now.saturating_sub(instant)))
}

/// Bytes that anybody may have chosen, such as a name: text as it is, everything that could move the cursor or is no text as
/// an escape.
pub fn name(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if is_shown(character) {
                text.push(character);
            } else {
                text.extend(character.escape_unicode());
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// A text of a program in one line.
pub fn line(text: &str) -> String {
    name(text.trim().as_bytes())
}

/// Not: controls, and what turns the direction of a line or has no width.
fn is_shown(character: char) -> bool {
    !character.is_control()
        && !matches!(character, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [99_999, 100_000, 999_499, 999_500, 12_345_678].map(short),
            ["99,999", "100k", "999k", "1.00M", "12.3M"]
        );
        assert_eq!(short(u64::MAX), "18.4E");
        assert_eq!([0, 1023, 1024, 1_268_000].map(bytes), ["0 B", "1023 B", "1.00 KiB", "1.21 MiB"]);
        assert_eq!([0.0, 0.04, 9.9, 9.96, 123_456.0].map(rate), ["0", "0.0", "9.9", "10", "123k"]);
    }

    #[test]
    fn durations_have_two_units_at_most() {
        let shown = [0, 999, 1000, 59_999, 60_000, 61_000, 3_600_000, 90_000_000].map(duration);
        assert_eq!(shown, ["0 ms", "999 ms", "1.0 s", "59.9 s", "1 m", "1 m 1 s", "1 h", "1 d 1 h"]);
        assert_eq!(
            [until(5, 5), until(6, 5), since(1, 5), since(6, 5)],
            ["due", "in 1 ms", "4 ms ago", "0 ms ago"]
        );
        assert_eq!([59_999, 60_000, 90_000_000, u64::MAX].map(age), ["59.9 s", "1 m", "1 d", "9999 d"]);
        assert!(!duration(u64::MAX).is_empty());
    }

    #[test]
    fn names_cannot_harm_the_terminal() {
        assert_eq!(name("Überfall 队列".as_bytes()), "Überfall 队列");
        assert_eq!(name(b"a\x1b[2J\r\n"), "a\\u{1b}[2J\\u{d}\\u{a}");
        assert_eq!(name(b"\xff\xc3mail\x80"), "\\xff\\xc3mail\\x80");
        assert_eq!(name("\u{202e}x".as_bytes()), "\\u{202e}x");
    }
}
