//! The page for people who look after the service: `GET /`.
//!
//! `page/` has what a browser gets, as it is: HTML, CSS and modules of JavaScript that need no build, no network and no
//! framework. The page uses nothing but the API, so it may do what whoever is signed in may do, and no more.

use std::sync::LazyLock;

use hyper::StatusCode;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, ETAG, HeaderValue, IF_NONE_MATCH, REFERRER_POLICY,
};
use sha2::{Digest as _, Sha256};

use crate::answer::{self, Answer};
use crate::refused::Refused;
use crate::service::{Call, Service};

/// Only what comes from here, and no script or style within the page.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// A file that a browser gets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Asset {
    path: &'static str,
    kind: &'static str,
    text: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

macro_rules! assets {
    ($($path:literal, $kind:ident, $file:literal;)*) => {
        [$(Asset { path: $path, kind: $kind, text: include_str!(concat!("page/", $file)) }),*]
    };
}

const COUNT: usize = 13;

static ASSETS: [Asset; COUNT] = assets! {
    "/", HTML, "index.html";
    "/dashboard/style.css", CSS, "style.css";
    "/dashboard/icon.svg", SVG, "icon.svg";
    "/dashboard/app.js", JAVASCRIPT, "app.js";
    "/dashboard/api.js", JAVASCRIPT, "api.js";
    "/dashboard/live.js", JAVASCRIPT, "live.js";
    "/dashboard/rows.js", JAVASCRIPT, "rows.js";
    "/dashboard/table.js", JAVASCRIPT, "table.js";
    "/dashboard/lease.js", JAVASCRIPT, "lease.js";
    "/dashboard/timeline.js", JAVASCRIPT, "timeline.js";
    "/dashboard/totals.js", JAVASCRIPT, "totals.js";
    "/dashboard/break.js", JAVASCRIPT, "break.js";
    "/dashboard/words.js", JAVASCRIPT, "words.js";
};

/// What is the same as long as a file is: a part of its hash.
static TAGS: LazyLock<[HeaderValue; COUNT]> = LazyLock::new(|| {
    std::array::from_fn(|place| {
        let hash = Sha256::digest(ASSETS[place].text);
        let hash = hash.iter().take(12).map(|byte| format!("{byte:02x}"));
        let tag = format!("\"{}\"", hash.collect::<String>());
        HeaderValue::try_from(tag).expect("digits and letters are fine in a header")
    })
});

/// The file at this path.
pub(crate) fn find(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.path == path)
}

impl Service {
    pub(crate) fn dashboard(
        &self,
        call: &Call<'_>,
        asset: &'static Asset,
    ) -> Result<Answer, Refused> {
        call.query.only(&[])?;
        let place = ASSETS.iter().position(|one| one.path == asset.path);
        let tag = place.map(|place| &TAGS[place]);
        let mut seen = call.headers.get_all(IF_NONE_MATCH).into_iter();
        let unchanged = tag.is_some() && seen.any(|seen| Some(seen) == tag);
        let text = if unchanged { "" } else { asset.text };
        let mut answer = answer::text(asset.kind, text);
        if unchanged {
            answer.status = StatusCode::NOT_MODIFIED;
        }
        let headers = &mut answer.headers;
        // Kept by the browser, and asked for again each time: after an update of the service nothing is mixed.
        headers.push((CACHE_CONTROL, HeaderValue::from_static("no-cache")));
        headers.extend(tag.map(|tag| (ETAG, tag.clone())));
        headers.push((CONTENT_SECURITY_POLICY, POLICY));
        headers.push((REFERRER_POLICY, HeaderValue::from_static("no-referrer")));
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What stands between quotes after a word.
    fn named<'t>(text: &'t str, word: &str) -> Vec<&'t str> {
        let parts = text.split(word).skip(1);
        parts.filter_map(|part| part.split('"').next()).collect()
    }

    #[test]
    fn everything_that_the_page_asks_for_is_there_and_nothing_is_elsewhere() {
        let page = find("/").unwrap();
        let mut asked = named(page.text, "href=\"dashboard/");
        asked.extend(named(page.text, "src=\"dashboard/"));
        for asset in ASSETS.iter().filter(|asset| asset.kind == JAVASCRIPT) {
            asked.extend(named(asset.text, "from \"./"));
        }
        assert!(asked.len() > COUNT);
        for file in asked {
            assert!(find(&format!("/dashboard/{file}")).is_some(), "{file}");
        }
        for asset in &ASSETS {
            let elsewhere = asset.text.replace("http://www.w3.org/2000/svg", "");
            assert!(!elsewhere.contains("://"), "{}", asset.path);
            for inline in ["style=\"", "<style", "onclick", "innerHTML", "eval("] {
                assert!(!asset.text.contains(inline), "{}: {inline}", asset.path);
            }
        }
    }
}
