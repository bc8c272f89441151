//! One JSON text from what would otherwise be a reply of many parts.
//!
//! The views of the operators' commands write themselves to an [`Out`]. [`Json`] is one, so a view
//! exists once, whatever form is asked for. Words, and bytes that are UTF-8, become strings; other
//! bytes become `{"base64": "…"}`, so that nothing is lost and nothing is mistaken for text.

use std::io::Write;

use crate::server::reply::Out;

/// Collects what is written to it as JSON.
#[derive(Debug, Default)]
pub struct Json {
    text: Vec<u8>,
    /// The arrays and maps not yet complete, outermost first.
    open: Vec<Open>,
}

#[derive(Debug)]
struct Open {
    /// Values still to come; a key counts as one.
    left: usize,
    is_map: bool,
    is_empty: bool,
}

impl Json {
    /// The text. Complete once every announced value was written.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.text
    }

    /// What stands before a value; `true` if the value is the key of a map.
    fn begin(&mut self) -> bool {
        let Some(open) = self.open.last_mut() else { return false };
        let is_key = open.is_map && open.left % 2 == 0;
        let separator = match (open.is_empty, open.is_map && !is_key) {
            (true, _) => None,
            (false, true) => Some(b':'),
            (false, false) => Some(b','),
        };
        open.is_empty = false;
        open.left = open.left.saturating_sub(1);
        self.text.extend(separator);
        is_key
    }

    /// Closes what is complete.
    fn end(&mut self) {
        while let Some(open) = self.open.pop_if(|open| open.left == 0) {
            self.text.push(if open.is_map { b'}' } else { b']' });
        }
    }

    fn open(&mut self, is_map: bool, left: usize) {
        self.begin();
        self.text.push(if is_map { b'{' } else { b'[' });
        self.open.push(Open { left, is_map, is_empty: true });
        self.end();
    }

    fn string(&mut self, text: &str) {
        // Writing into memory cannot fail, nor can a string be unfit for JSON.
        let _ = serde_json::to_writer(&mut self.text, text);
    }
}

impl Out for Json {
    fn null(&mut self) {
        self.begin();
        self.text.extend_from_slice(b"null");
        self.end();
    }

    fn integer(&mut self, value: i64) {
        let is_key = self.begin();
        let quote: &[u8] = if is_key { b"\"" } else { b"" };
        self.text.extend_from_slice(quote);
        let _ = write!(self.text, "{value}");
        self.text.extend_from_slice(quote);
        self.end();
    }

    fn bulk(&mut self, value: &[u8]) {
        let is_key = self.begin();
        match std::str::from_utf8(value) {
            Ok(text) => self.string(text),
            // A key can only be a string.
            Err(_) if is_key => self.string(&String::from_utf8_lossy(value)),
            Err(_) => {
                self.text.extend_from_slice(b"{\"base64\":\"");
                base64(value, &mut self.text);
                self.text.extend_from_slice(b"\"}");
            }
        }
        self.end();
    }

    fn word(&mut self, value: &str) {
        self.begin();
        self.string(value);
        self.end();
    }

    fn array(&mut self, len: usize) {
        self.open(false, len);
    }

    fn map(&mut self, pairs: usize) {
        self.open(true, pairs.saturating_mul(2));
    }
}

/// RFC 4648, section 4: the standard alphabet, padded.
fn base64(bytes: &[u8], text: &mut Vec<u8>) {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for three in bytes.chunks(3) {
        let byte = |index: usize| u32::from(three.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for (index, shift) in [18, 12, 6, 0].into_iter().enumerate() {
            let letter = ALPHABET.get((bits >> shift & 63) as usize).copied().unwrap_or(b'=');
            // Three bytes are four letters, two are three, one is two.
            text.push(if index > three.len() { b'=' } else { letter });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut dyn Out)) -> String {
        let mut json = Json::default();
        write(&mut json);
        assert!(json.open.is_empty(), "complete");
        let text = String::from_utf8(json.into_bytes()).unwrap();
        serde_json::from_str::<serde_json::Value>(&text).unwrap();
        text
    }

    #[test]
    fn scalars() {
        assert_eq!(written(|out| out.null()), "null");
        assert_eq!(written(|out| out.integer(i64::MIN)), "-9223372036854775808");
        assert_eq!(written(|out| out.word("ready")), "\"ready\"");
        assert_eq!(
            written(|out| out.bulk("gr\u{fc}n \"\\\n\0".as_bytes())),
            "\"gr\u{fc}n \\\"\\\\\\n\\u0000\""
        );
        assert_eq!(written(|out| out.bulk(b"")), "\"\"");
        assert_eq!(written(|out| out.bulk(&[0xff, 0x00])), "{\"base64\":\"/wA=\"}");
    }

    #[test]
    fn nested() {
        let text = written(|out| {
            out.map(3);
            out.word("a");
            out.array(2);
            out.integer(1);
            out.map(0);
            out.word("b");
            out.map(1);
            out.bulk(b"c");
            out.null();
            out.integer(7);
            out.array(0);
        });
        assert_eq!(text, r#"{"a":[1,{}],"b":{"c":null},"7":[]}"#);
        assert_eq!(written(|out| out.array(0)), "[]");
        assert_eq!(written(|out| out.map(0)), "{}");
    }

    #[test]
    fn every_byte_survives() {
        let of = |bytes: &[u8]| {
            let mut text = Vec::new();
            base64(bytes, &mut text);
            String::from_utf8(text).unwrap()
        };
        // The examples of RFC 4648, section 10.
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(of(bytes.as_bytes()), text);
        }
        let all: Vec<u8> = (0..=255).collect();
        assert!(of(&all).ends_with("+fr7/P3+/w=="));
    }
}
