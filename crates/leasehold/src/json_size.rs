//! How long a text is as JSON.

/// The bytes of a text as JSON, without the quotes around it: control characters take six, or two where they have a short form.
pub fn json_bytes(text: &str) -> usize {
    let bytes = text.bytes().map(|byte| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..=0x1f => 6,
        _ => 1,
    });
    bytes.sum()
}

#[cfg(all(test, feature = "http"))]
mod tests {
    use super::*;

    #[test]
    fn it_is_as_long_as_serde_writes_it() {
        let controls: String = (0..0x80).map(char::from).collect();
        for text in ["", "plain", "é🔒\u{7f}\u{2028}\"", &controls] {
            let written = serde_json::to_string(text).unwrap();
            assert_eq!(json_bytes(text) + 2, written.len(), "{text:?}");
        }
    }
}
