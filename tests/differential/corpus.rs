//! The corpus as cases: the fixed core, the samples of a seed, unusual requests, discovery and
//! OpenAPI.

use super::expected::Expect;
use super::odd::{OPENAPI_V3, documents, odd};
use super::read_request::{Marks, ReadRequest, Token, Verb, Version};
use super::run::{Case, Sides};
use super::sample::sample;
use super::tables::core;

/// `$DIFFERENTIAL_SEED`, or a constant.
pub(crate) fn seed() -> u64 {
    let given = std::env::var("DIFFERENTIAL_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or(20);
    eprintln!("DIFFERENTIAL_SEED={seed}");
    seed
}

/// The core and `count` sampled requests.
pub(crate) fn cases(marks: &Marks, sampled: usize) -> Vec<Case> {
    let mut cases: Vec<_> = core().iter().map(|read| Case::from_read(read, marks)).collect();
    cases.extend(some_cases(marks, sampled));
    cases
}

/// The sampled requests only.
pub(crate) fn some_cases(marks: &Marks, count: usize) -> Vec<Case> {
    let mut cases: Vec<_> =
        sample(seed(), count).iter().map(|read| Case::from_read(read, marks)).collect();
    cases.extend(odd().into_iter().map(|(call, expect)| Case::new(call, expect)));
    cases
}

/// The lists of the core, and `count` sampled ones, without a resourceVersion.
pub(crate) fn consistent_lists(marks: &Marks, count: usize) -> Vec<Case> {
    let sampled = sample(seed(), count).into_iter().map(|read| match read.meaning() {
        // The resourceVersion decides whether the API server refuses a match or a token.
        Verb::List if read.matched.is_empty() && read.token == Token::None => {
            ReadRequest { version: Version::Unset, ..read }
        }
        _ => read,
    });
    let lists = core().into_iter().chain(sampled).filter(|read| {
        // The first of two parameters counts.
        let is_replaced = read.idle.starts_with("resourceVersion");
        let is_unset = matches!(read.version, Version::Unset | Version::Empty);
        read.meaning() == Verb::List && is_unset && !is_replaced
    });
    lists.map(|read| Case::before_proofs(&read, marks)).collect()
}

/// Documents, each once plain and once with the ETag that it came with (docs/semantics.md §10).
pub(crate) async fn document_cases(sides: &Sides) -> Vec<Case> {
    let mut connection = sides.direct.connection();
    let mut calls = documents();
    let index = connection.send(&super::wire::Call::get("/openapi/v3")).await.json();
    for group_version in ["api/v1", "apis/example.com/v1", "apis/apps/v1"] {
        let url = index["paths"][group_version]["serverRelativeURL"].as_str();
        let Some(url) = url else { continue };
        let (path, _) = url.split_once('?').unwrap_or((url, ""));
        for accept in OPENAPI_V3 {
            for url in [url, path, &format!("{path}?hash=OLD")] {
                calls.push(super::wire::Call::get(url).header("accept", accept));
            }
        }
    }
    let mut cases = Vec::new();
    for call in calls {
        let answer = connection.send(&call).await;
        let etag = answer.header("etag").to_owned();
        // The first request through Weir fills its cache; the second one is compared.
        drop(sides.through.send(&call).await);
        let expect = if etag.is_empty() { Expect::Either } else { Expect::Cache };
        if !etag.is_empty() {
            let again = call.clone().header("if-none-match", &etag);
            cases.push(Case::new(again, Expect::Either));
            let other = call.clone().header("if-none-match", "\"other\"");
            cases.push(Case::new(other, Expect::Either));
        }
        cases.push(Case::new(call, expect));
    }
    cases
}
