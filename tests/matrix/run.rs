//! Sends every request of every user both ways.

use std::collections::BTreeMap;

use futures::StreamExt;

use super::requests::cases;
use super::users::{User, users};
use super::world::World;
use crate::suite::expected::Expect;
use crate::suite::run::{Case, HIT, run_by};

/// Compares all requests, or one of every `stride`, where each user starts at another one.
pub(crate) async fn matrix(world: &World, one_in: usize) {
    let (mut wrong, mut seen) = (Vec::new(), BTreeMap::<(u16, String), usize>::new());
    let everybody = users(world);
    let reports = everybody.iter().enumerate().map(async |(number, user)| {
        let sampled = cases_of(world, user).into_iter().skip(number % one_in).step_by(one_in);
        (user, run_by(&world.sides(user), sampled.collect(), WORKERS).await)
    });
    let mut reports = futures::stream::iter(reports).buffer_unordered(AT_ONCE);
    while let Some((user, report)) = reports.next().await {
        let (mut complaints, counts) = report.into_parts();
        let total: usize = counts.values().sum();
        let refused = counts.iter().filter(|((status, _), _)| *status == 401);
        let refused: usize = refused.map(|(_, count)| count).sum();
        eprintln!(
            "{:30} {total:4} requests, {refused:4} refused, {} wrong",
            user.name,
            complaints.len()
        );
        let answered = |(status, cache): &(u16, String)| *status == 200 && cache == HIT;
        let hits: usize =
            counts.iter().filter(|(key, _)| answered(key)).map(|(_, count)| count).sum();
        if NOBODY.contains(&user.name) && hits > 0 {
            complaints.push(format!("{hits} answers from the cache for a wrong credential"));
        }
        wrong.extend(complaints.into_iter().map(|text| format!("{}: {text}", user.name)));
        for (key, count) in counts {
            *seen.entry(key).or_default() += count;
        }
    }
    for ((status, from), count) in &seen {
        eprintln!("  {count:5} {status} {from}");
    }
    let lines: Vec<_> = wrong.iter().take(SHOWN_MAX).map(String::as_str).collect();
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), lines.join("\n"));
    // The run reaches the cases that it is made for.
    for (status, hit) in [(200, true), (200, false), (401, false), (403, false), (404, true)] {
        let fits = |(listed_status, from): &(u16, String)| {
            *listed_status == status && (from == HIT) == hit
        };
        let count: usize = seen.iter().filter(|(key, _)| fits(key)).map(|(_, count)| count).sum();
        assert!(count * one_in > 100, "{status} hardly ever came up, {count} times");
    }
}

fn cases_of(world: &World, user: &User) -> Vec<Case> {
    let mut cases = cases(world.traits);
    if user.certificate.is_some() && !world.traits.credential_ids {
        cases.retain(|case| !case.call.path.ends_with("/selfsubjectreviews"));
    }
    let impersonates = user.headers.iter().any(|(name, _)| name.starts_with("impersonate-"));
    for case in &mut cases {
        case.call.headers.extend(user.headers.iter().cloned());
        // A document is not served to another user.
        let is_forwarded = !user.hits || impersonates && !case.call.path.contains("/v1/");
        if is_forwarded && case.expect == Expect::Cache {
            case.expect = Expect::Either;
        }
    }
    cases
}

/// Users who present only wrong credentials.
const NOBODY: [&str; 6] = [
    "expired certificate",
    "expired masters certificate",
    "another CA's certificate",
    "wrong token",
    "both wrong",
    "front proxy, silent",
];

/// Users whose requests run at the same time: watches take time to end.
const AT_ONCE: usize = 8;
/// Requests of one user at the same time, for watches and for all others. Each user has two
/// connections, because handshakes cost more than anything else here.
const WORKERS: [usize; 2] = [20, 4];
const SHOWN_MAX: usize = 40;
