//! Signs requests with a key of the account, which the SDK does not support.

use std::sync::Arc;

use async_trait::async_trait;
use azure_core::credentials::Secret;
use azure_core::hmac::hmac_sha256;
use azure_core::http::headers::{HeaderName, Headers};
use azure_core::http::policies::{Policy, PolicyResult};
use azure_core::http::{Context, Request};
use azure_core::time::{OffsetDateTime, to_rfc7231};

/// The standard headers to sign, in this order. The date is in a header of Azure's own.
const STANDARD_HEADERS: [&str; 11] = [
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
];

/// Signs each request with the scheme `SharedKey`.
#[derive(Debug)]
pub(super) struct SharedKeySigner {
    pub(super) account: String,
    pub(super) key: Secret,
}

#[async_trait]
#[expect(elided_lifetimes_in_paths, reason = "required by the trait")]
impl Policy for SharedKeySigner {
    async fn send(
        &self,
        context: &Context,
        request: &mut Request,
        next: &[Arc<dyn Policy>],
    ) -> PolicyResult {
        request.insert_header("x-ms-date", to_rfc7231(&OffsetDateTime::now_utc()));
        let signature = hmac_sha256(&self.string_to_sign(request), &self.key)?;
        let authorization = format!("SharedKey {}:{signature}", self.account);
        request.insert_header("authorization", authorization);
        next[0].send(context, request, &next[1..]).await
    }
}

impl SharedKeySigner {
    fn string_to_sign(&self, request: &Request) -> String {
        let mut text = format!("{}\n", request.method().as_str());
        for name in STANDARD_HEADERS {
            text.push_str(standard_header(request, name).trim());
            text.push('\n');
        }
        for (name, value) in azure_headers(request.headers()) {
            text.push_str(&format!("{name}:{}\n", value.trim()));
        }
        text.push_str(&format!("/{}{}", self.account, request.url().path()));
        let mut pairs: Vec<_> = request
            .url()
            .query_pairs()
            .map(|(key, value)| (key.to_lowercase(), value.into_owned()))
            .collect();
        pairs.sort();
        for (key, value) in pairs {
            text.push_str(&format!("\n{key}:{value}"));
        }
        text
    }
}

fn standard_header(request: &Request, name: &'static str) -> String {
    match name {
        "content-length" => match request.body().len() {
            None | Some(0) => String::new(),
            Some(length) => length.to_string(),
        },
        name => {
            let value = request
                .headers()
                .get_optional_str(&HeaderName::from_static(name));
            value.unwrap_or_default().to_owned()
        }
    }
}

fn azure_headers(headers: &Headers) -> Vec<(&str, &str)> {
    let all = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    let mut own: Vec<_> = all.filter(|(name, _)| name.starts_with("x-ms-")).collect();
    own.sort();
    own
}

#[cfg(test)]
mod tests {
    use azure_core::http::{Method, Url};

    use super::*;

    #[test]
    fn string_to_sign_matches_the_shared_key_scheme() {
        let url =
            "https://acme.blob.core.windows.net/leases/lock%2Fa%2520b?restype=container&Comp=list";
        let mut request = Request::new(Url::parse(url).unwrap(), Method::Put);
        request.insert_header("if-match", "\"0x1\"");
        request.insert_header("x-ms-version", "2026-04-06");
        request.insert_header("x-ms-date", "Mon, 16 Nov 2026 00:00:00 GMT");
        request.set_body(vec![b'x'; 12]);
        let signer = SharedKeySigner {
            account: "acme".into(),
            key: "c2VjcmV0".into(),
        };
        assert_eq!(
            signer.string_to_sign(&request),
            "PUT\n\n\n12\n\n\n\n\n\"0x1\"\n\n\n\n\
             x-ms-date:Mon, 16 Nov 2026 00:00:00 GMT\nx-ms-version:2026-04-06\n\
             /acme/leases/lock%2Fa%2520b\ncomp:list\nrestype:container"
        );
        assert!(!format!("{signer:?}").contains("c2VjcmV0"));
    }
}
