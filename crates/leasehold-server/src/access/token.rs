//! The format of tokens, and their hashes.

use std::fmt;

use leasehold::{Error, Result};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// The prefix of every token, by which scanners for leaked secrets recognize one.
const PREFIX: &str = "lh_";
pub(super) const ID_CHARS: usize = 8;
/// 43 characters of 62 kinds are 256 bits.
const SECRET_CHARS: usize = 43;
const CHECK_CHARS: usize = 6;
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A token: `lh_`, an id that is not secret, `_`, 256 secret bits, and a checksum. It is shown once, when it is created;
/// only its [hash](TokenHash) is stored.
pub struct Token(String);

impl Token {
    /// Generates a token.
    pub fn generate() -> Result<Self> {
        let mut text = PREFIX.to_owned();
        push_random(&mut text, ID_CHARS)?;
        text.push('_');
        push_random(&mut text, SECRET_CHARS)?;
        let check = checksum(&text);
        text.push_str(&check);
        Ok(Self(text))
    }

    /// Returns the token, which is secret.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns its id, which is not secret.
    pub fn id(&self) -> &str {
        id(&self.0).unwrap_or_default()
    }

    /// Returns its hash.
    pub fn hash(&self) -> TokenHash {
        TokenHash::of(&self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}…)", self.id())
    }
}

/// Returns the id of a text in the format of a token with a valid checksum.
pub(crate) fn id(text: &str) -> Option<&str> {
    let body = text.strip_prefix(PREFIX)?;
    let is_valid = |c: u8| c == b'_' || DIGITS.contains(&c);
    let is_well_formed =
        body.len() == ID_CHARS + 1 + SECRET_CHARS + CHECK_CHARS && body.bytes().all(is_valid);
    let (rest, check) = text.split_at_checked(text.len().checked_sub(CHECK_CHARS)?)?;
    (is_well_formed && checksum(rest) == check).then(|| &body[..ID_CHARS])
}

/// The hash of a token. One round of SHA-256 is enough, because 256 random bits cannot be guessed.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    pub(crate) fn of(token: &str) -> Self {
        Self(Sha256::digest(token).into())
    }

    pub(crate) fn matches(&self, token: &str) -> bool {
        self.equals(&Self::of(token))
    }

    /// Compares in constant time.
    pub(super) fn equals(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }

    pub(crate) fn parse(hex: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        if hex.len() != 64 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&hex[index * 2..index * 2 + 2], 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash(…)")
    }
}

/// Returns random characters, each with almost six bits.
pub(super) fn random(chars: usize) -> Result<String> {
    let mut text = String::with_capacity(chars);
    push_random(&mut text, chars)?;
    Ok(text)
}

fn push_random(text: &mut String, chars: usize) -> Result<()> {
    let mut bytes = [0; 64];
    let whole = text.len() + chars;
    while text.len() < whole {
        getrandom::fill(&mut bytes)
            .map_err(|error| Error::Denied(format!("cannot generate random bytes: {error}")))?;
        // Six bits per character. Two of the 64 values have none and are skipped, so that all are equally likely.
        let digits = bytes
            .iter()
            .filter_map(|byte| DIGITS.get(usize::from(byte & 63)));
        text.extend(
            digits
                .take(whole - text.len())
                .map(|digit| char::from(*digit)),
        );
    }
    Ok(())
}

/// Returns the checksum, by which mistyped tokens are recognized without the access file.
fn checksum(text: &str) -> String {
    let hash = Sha256::digest(text);
    let mut number = u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]);
    let mut digits = String::with_capacity(CHECK_CHARS);
    for _ in 0..CHECK_CHARS {
        digits.push(char::from(DIGITS[(number % 62) as usize]));
        number /= 62;
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_has_a_prefix_and_an_id_and_does_not_show_its_secret() {
        let token = Token::generate().unwrap();
        let text = token.expose();
        assert!(text.starts_with("lh_") && text.len() == 61, "{text}");
        assert_eq!(id(text), Some(token.id()));
        assert_eq!(token.id().len(), 8);
        assert!(token.hash().matches(text));
        assert!(!format!("{token:?} {:?}", token.hash()).contains(&text[12..]));
        let other = Token::generate().unwrap();
        assert!(!other.hash().matches(text));
        assert_ne!(other.id(), token.id());
    }

    #[test]
    fn mistyped_token_is_rejected() {
        let token = Token::generate().unwrap();
        let text = token.expose();
        let swapped = format!(
            "{}{}",
            &text[..60],
            if text.ends_with('A') { 'B' } else { 'A' }
        );
        let upper = text.replacen("lh_", "LH_", 1);
        for bad in [
            "",
            "lh_",
            "é",
            &text[1..],
            &text[..60],
            &*swapped,
            &*upper,
            &*format!("{text} "),
        ] {
            assert_eq!(id(bad), None, "{bad}");
        }
    }

    #[test]
    fn hash_is_parsed_from_its_text() {
        let hash = TokenHash::of("x");
        assert_eq!(TokenHash::parse(&hash.to_string()), Some(hash));
        for bad in [
            "",
            "00",
            &"é".repeat(32),
            &"+f".repeat(32),
            &"zz".repeat(32),
        ] {
            assert_eq!(TokenHash::parse(bad), None, "{bad}");
        }
    }
}
