//! Names of blobs: readable, all different, and in the order of the names that they stand for.
//!
//! Letters, digits and most marks are as they are. What Azure, a URL or XML might mangle is the two hexadecimal digits of
//! each of its bytes behind a marker. Which marker depends on where the byte stands among the others, and no marker
//! stands for itself: so blobs sort as names do, byte for byte, and a prefix stays a prefix.

use leasehold_core::{Hash, Kind, Name};

/// Azure takes 1,024 characters, those of the kind included.
const LONGEST: usize = 1_000;
/// What is left of a longer one, before a hash of all of it.
const KEPT: usize = 900;
/// What begins that hash. Behind this marker there is a digit otherwise.
const HASHED: &str = "~~";

/// The blob that a record is in.
pub(super) fn blob(name: &Name) -> String {
    let (folder, text) = (folder(name.kind()), encoded(name.as_str()));
    if text.len() <= LONGEST {
        return format!("{folder}{text}");
    }
    let hash = Hash::of(&[name.as_str().as_bytes()]);
    format!("{folder}{}{HASHED}{hash}", beginning(name.as_str()))
}

/// What the blobs of all names with this prefix begin with; those of others may, too.
pub(super) fn prefix(kind: Kind, prefix: &str) -> String {
    format!("{}{}", folder(kind), beginning(prefix))
}

fn folder(kind: Kind) -> String {
    format!("{}/", kind.as_str())
}

fn encoded(text: &str) -> String {
    text.bytes().map(code).collect()
}

/// As many whole codes as are kept of a long name.
fn beginning(text: &str) -> String {
    let mut begun = String::new();
    for code in text.bytes().map(code) {
        if begun.len() + code.len() > KEPT {
            break;
        }
        begun.push_str(&code);
    }
    begun
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
    fn people_recognize_names() {
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
    fn blobs_sort_as_names_do() {
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
    fn long_names_fit_and_stay_apart() {
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
