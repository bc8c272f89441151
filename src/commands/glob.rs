//! Glob-style patterns, as the server's `KEYS` and `SCAN` read them.
//!
//! `*` any bytes, `?` one byte, `[abc]`, `[a-z]`, `[^a-z]` one byte of (or not of) a set, `\x` the
//! byte x. Takes at most (length of the pattern) · (length of the text) steps, whatever they are.

/// Whether the whole `text` is of the form `pattern`.
#[must_use]
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut pattern, mut text) = (pattern, text);
    // Where to go on when the rest does not match: behind the last `*`, with one byte more in it.
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', rest @ ..] = pattern {
            pattern = rest;
            retry = Some((rest, text));
            continue;
        }
        let step = match (text.split_first(), pattern.is_empty()) {
            (None, _) => return pattern.is_empty(),
            (Some(_), true) => None,
            (Some((&byte, rest)), false) => one(pattern, byte).map(|pattern| (pattern, rest)),
        };
        (pattern, text) = match (step, retry) {
            (Some(next), _) => next,
            (None, Some((after_star, [_, swallowed @ ..]))) => {
                retry = Some((after_star, swallowed));
                (after_star, swallowed)
            }
            (None, _) => return false,
        };
    }
}

/// The rest of the pattern behind what matches `byte`; `None` if its first part does not.
fn one(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    match pattern {
        [b'?', rest @ ..] => Some(rest),
        [b'[', rest @ ..] => set(rest, byte),
        [b'\\', literal, rest @ ..] | [literal, rest @ ..] => (*literal == byte).then_some(rest),
        [] => None,
    }
}

/// The rest of the pattern behind a set, the `[` of which is read. A set without end ends with
/// the pattern.
fn set(set: &[u8], byte: u8) -> Option<&[u8]> {
    let (is_negated, mut set) = match set {
        [b'^', rest @ ..] => (true, rest),
        all => (false, all),
    };
    let mut is_in = false;
    let rest = loop {
        let (low, high, rest) = match set {
            [] => break set,
            [b']', rest @ ..] => break rest,
            [b'\\', literal, rest @ ..] => (*literal, *literal, rest),
            [from, b'-', to, rest @ ..] => (*from.min(to), *from.max(to), rest),
            [literal, rest @ ..] => (*literal, *literal, rest),
        };
        is_in |= (low..=high).contains(&byte);
        set = rest;
    };
    (is_in != is_negated).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, text) in [
            ("", ""),
            ("*", ""),
            ("*", "anything"),
            ("**", "x"),
            ("a*", "a"),
            ("a*c", "abcabc"),
            ("*b*", "abc"),
            ("queue:1?", "queue:17"),
            ("[ab]c", "bc"),
            ("[a-c]", "b"),
            ("[c-a]", "b"),
            ("[^a-c]", "d"),
            ("[\\]]", "]"),
            ("[-]", "-"),
            ("[abc", "c"),
            ("\\*", "*"),
            ("a\\", "a\\"),
            ("*.[ch]", "a.b.c"),
            ("\u{e4}*", "\u{e4}rger"),
        ] {
            assert!(matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("", "a"),
            ("a", ""),
            ("?", ""),
            ("a*c", "abcab"),
            ("queue:1?", "queue:1"),
            ("[ab]", "c"),
            ("[^ab]", "a"),
            ("[^ab]", ""),
            ("[]", "x"),
            ("\\*", "x"),
            ("A", "a"),
        ] {
            assert!(!matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_take_no_time() {
        let pattern = b"*a".repeat(250);
        let text = [b'a'; 20_000];
        assert!(matches(&pattern, &text));
        let never = [&pattern[..], b"b"].concat();
        assert!(!matches(&never, &text));
    }
}
