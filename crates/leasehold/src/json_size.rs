//! The size of texts in JSON.

/// Returns the length of a text in JSON in bytes, without the quotes.
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
    fn size_equals_that_of_serde() {
        let controls: String = (0..0x80).map(char::from).collect();
        for text in ["", "plain", "é🔒\u{7f}\u{2028}\"", &controls] {
            let json = serde_json::to_string(text).unwrap();
            assert_eq!(json_bytes(text) + 2, json.len(), "{text:?}");
        }
    }
}
