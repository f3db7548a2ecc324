//! Encodes names as blob names: readable, injective, and in the same order.
//!
//! Letters, digits and most punctuation are unchanged. Bytes that Azure, a URL or XML might change are written as a
//! marker and two hexadecimal digits. The marker depends on the byte's position in the order of bytes, and markers
//! themselves are encoded: so blobs sort like names, byte for byte, and a prefix stays a prefix.

use leasehold_core::{Hash, Kind, Name};

/// The maximum length. Azure allows 1,024 characters, including the kind.
const MAX_LENGTH: usize = 1_000;
/// How much of a longer name is kept before the hash.
const KEPT_LENGTH: usize = 900;
/// Introduces the hash. Elsewhere this marker is followed by a digit.
const HASH_MARKER: &str = "~~";

/// Returns the blob name of a record.
pub(super) fn blob(name: &Name) -> String {
    let (folder, text) = (folder(name.kind()), encoded(name.as_str()));
    if text.len() <= MAX_LENGTH {
        return format!("{folder}{text}");
    }
    let hash = Hash::of(&[name.as_str().as_bytes()]);
    format!("{folder}{}{HASH_MARKER}{hash}", truncated(name.as_str()))
}

/// Returns the common prefix of the blobs of all names with this prefix. Blobs of other names may have it too.
pub(super) fn prefix(kind: Kind, prefix: &str) -> String {
    format!("{}{}", folder(kind), truncated(prefix))
}

fn folder(kind: Kind) -> String {
    format!("{}/", kind.as_str())
}

fn encoded(text: &str) -> String {
    text.bytes().map(code).collect()
}

/// Returns as many whole codes as are kept of a long name.
fn truncated(text: &str) -> String {
    let mut truncated = String::new();
    for code in text.bytes().map(code) {
        if truncated.len() + code.len() > KEPT_LENGTH {
            break;
        }
        truncated.push_str(&code);
    }
    truncated
}

fn code(byte: u8) -> String {
    let marker = match byte {
        ..=b'%' => '%',
        b'.' | b'/' => '.',
        b'['..=b'^' => '^',
        b'{'.. => '~',
        kept => return char::from(kept).to_string(),
    };
    format!("{marker}{byte:02X}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(text: &str) -> String {
        blob(&Name::lock(text).expect("a good name"))
    }

    #[test]
    fn encoded_names_are_readable() {
        for (name, expected) in [
            ("nightly-report_7", "lock/nightly-report_7"),
            ("orders/42", "lock/orders.2F42"),
            ("a b.c", "lock/a%20b.2Ec"),
            ("100%", "lock/100%25"),
            ("..", "lock/.2E.2E"),
            ("a\\b", "lock/a^5Cb"),
            ("é~", "lock/~C3~A9~7E"),
        ] {
            assert_eq!(lock(name), expected);
        }
    }

    #[test]
    fn blobs_sort_like_names() {
        let characters: Vec<char> = (' '..='~').chain("é\u{e000}\u{fffd}🔒".chars()).collect();
        let mut names: Vec<String> = characters.iter().map(char::to_string).collect();
        for one in &characters {
            names.extend(characters.iter().map(|other| format!("{one}{other}")));
        }
        names.sort();
        let blobs: Vec<_> = names.iter().map(|name| lock(name)).collect();
        assert!(blobs.is_sorted_by(|one, other| one < other));
        assert!(blobs.iter().all(|blob| blob.is_ascii()));
    }

    #[test]
    fn long_names_fit_and_stay_distinct() {
        let long = "🔒".repeat(127);
        let blobs = ["", "a", "b", "🔓"].map(|end| lock(&format!("{long}{end}")));
        for (index, blob) in blobs.iter().enumerate() {
            assert!(blob.len() < 1_024);
            assert!(blob.starts_with(&prefix(Kind::Lock, &long)));
            assert!(!blobs[..index].contains(blob));
        }
        assert!(lock(&long[..320]).starts_with(&prefix(Kind::Lock, &long[..320])));
    }
}
