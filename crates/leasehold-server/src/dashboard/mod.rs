//! The dashboard for operators: `GET /`.
//!
//! `page/` contains the files that are sent to browsers: HTML, CSS and JavaScript modules, without a build step, a framework
//! or resources from other sites. The page only uses the API, so it has the rights of the user who has signed in.

use std::sync::LazyLock;

use hyper::StatusCode;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, ETAG, HeaderValue, IF_NONE_MATCH, REFERRER_POLICY,
};
use sha2::{Digest as _, Sha256};

use crate::answer::{self, Answer};
use crate::rejection::Rejection;
use crate::service::{Call, Service};

/// Allows only resources of this service, and no inline scripts or styles.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// A file of the page.
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

const COUNT: usize = 15;

static ASSETS: [Asset; COUNT] = assets! {
    "/", HTML, "index.html";
    "/dashboard/style.css", CSS, "style.css";
    "/dashboard/icon.svg", SVG, "icon.svg";
    "/dashboard/app.js", JAVASCRIPT, "app.js";
    "/dashboard/api.js", JAVASCRIPT, "api.js";
    "/dashboard/events.js", JAVASCRIPT, "events.js";
    "/dashboard/row.js", JAVASCRIPT, "row.js";
    "/dashboard/rows.js", JAVASCRIPT, "rows.js";
    "/dashboard/sort.js", JAVASCRIPT, "sort.js";
    "/dashboard/table.js", JAVASCRIPT, "table.js";
    "/dashboard/lease.js", JAVASCRIPT, "lease.js";
    "/dashboard/timeline.js", JAVASCRIPT, "timeline.js";
    "/dashboard/totals.js", JAVASCRIPT, "totals.js";
    "/dashboard/break.js", JAVASCRIPT, "break.js";
    "/dashboard/dom.js", JAVASCRIPT, "dom.js";
};

/// The entity tag of each file: a part of its hash.
static TAGS: LazyLock<[HeaderValue; COUNT]> = LazyLock::new(|| {
    std::array::from_fn(|index| {
        let hash = Sha256::digest(ASSETS[index].text);
        let hash = hash.iter().take(12).map(|byte| format!("{byte:02x}"));
        let tag = format!("\"{}\"", hash.collect::<String>());
        HeaderValue::try_from(tag).expect("digits and letters are valid in a header")
    })
});

/// Returns the file at this path.
pub(crate) fn find(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.path == path)
}

impl Service {
    pub(crate) fn dashboard(
        &self,
        call: &Call<'_>,
        asset: &'static Asset,
    ) -> Result<Answer, Rejection> {
        call.query.allow_only(&[])?;
        let index = ASSETS.iter().position(|other| other.path == asset.path);
        let tag = index.map(|index| &TAGS[index]);
        let mut cached = call.headers.get_all(IF_NONE_MATCH).into_iter();
        let is_unchanged = tag.is_some() && cached.any(|cached| Some(cached) == tag);
        let text = if is_unchanged { "" } else { asset.text };
        let mut answer = answer::text(asset.kind, text);
        if is_unchanged {
            answer.status = StatusCode::NOT_MODIFIED;
        }
        let headers = &mut answer.headers;
        // Browsers revalidate cached files each time, so that files of two versions are never mixed after an update.
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

    /// Returns the texts that follow `start` up to the next quotation mark.
    fn quoted_after<'t>(text: &'t str, start: &str) -> Vec<&'t str> {
        let parts = text.split(start).skip(1);
        parts.filter_map(|part| part.split('"').next()).collect()
    }

    #[test]
    fn all_referenced_files_exist_and_none_is_on_another_site() {
        let page = find("/").unwrap();
        let mut referenced = quoted_after(page.text, "href=\"dashboard/");
        referenced.extend(quoted_after(page.text, "src=\"dashboard/"));
        for asset in ASSETS.iter().filter(|asset| asset.kind == JAVASCRIPT) {
            referenced.extend(quoted_after(asset.text, "from \"./"));
        }
        assert!(referenced.len() > COUNT);
        for file in referenced {
            assert!(find(&format!("/dashboard/{file}")).is_some(), "{file}");
        }
        for asset in &ASSETS {
            let text = asset.text.replace("http://www.w3.org/2000/svg", "");
            assert!(!text.contains("://"), "{}", asset.path);
            for inline in ["style=\"", "<style", "onclick", "innerHTML", "eval("] {
                assert!(!asset.text.contains(inline), "{}: {inline}", asset.path);
            }
        }
    }
}
