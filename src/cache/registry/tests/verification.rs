//! Tests of the comparison of caches with the upstream, and of what follows from a difference.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::*;
use crate::cache::script::{object, rewritten, status, upsert as change};
use crate::cache::verification::findings::WrongSide;
use crate::codec::list::ListPage;
use crate::codec::object::Object;
use crate::testing::eventually_every;
use crate::upstream::error::UpstreamError;
use crate::upstream::lister_watcher::{ExactPart, ExactRequest};
use crate::upstream::version::UpstreamVersion;

/// The objects of an upstream, by name, with their resourceVersions.
type Objects = BTreeMap<String, u64>;

/// The sources of the answers to requests at one resourceVersion.
struct Answers {
    /// The objects in the API server's watch cache.
    cached: Objects,
    /// The objects in etcd.
    etcd: Objects,
    error: Option<UpstreamError>,
    /// Whether whole objects have other bytes than in the cache.
    is_rewritten: bool,
}

const ROUND: Duration = Duration::from_secs(30);
/// The interval in which the task looks for work.
const STEP: Duration = Duration::from_secs(1);

struct Checked {
    rig: Rig,
    script: Arc<Script>,
    feed: Feed,
    answers: Arc<Mutex<Answers>>,
    /// Keeps the cache from being idle.
    _handle: CacheHandle,
}

/// Starts a cache with the objects 1 to 3 at 1000, and an upstream with the same.
async fn checked(mode: VerifyMode) -> Checked {
    let script = Arc::new(Script::default());
    // Shorter than the script's watch lasts.
    let config = CacheConfig { verify: mode, ..config() };
    let seams = Seams { verify_round: ROUND, ..seams() };
    let rig = Rig::with(config, seams, one(&script));
    let version = r#"{"major":"1","minor":"36","gitVersion":"v1.36.2"}"#;
    rig.source.version.send_replace(UpstreamVersion::parse(version.as_bytes()));
    let feed = full(&script, 3);
    let _handle = rig.ready("configmaps", "").await.unwrap();
    let objects: Objects = (1..=3).map(|n| (n.to_string(), n)).collect();
    let answers =
        Answers { cached: objects.clone(), etcd: objects, error: None, is_rewritten: false };
    let answers = Arc::new(Mutex::new(answers));
    let shared = Arc::clone(&answers);
    *script.exact.lock() =
        Some(Box::new(move |request: &ExactRequest| answer(&shared.lock(), request)));
    Checked { rig, script, feed, answers, _handle }
}

fn answer(answers: &Answers, request: &ExactRequest) -> Result<ListPage, UpstreamError> {
    if let Some(error) = &answers.error {
        return Err(error.clone());
    }
    let form = |(name, version): (&String, &u64)| -> Object {
        let object = object(name, *version);
        if answers.is_rewritten && request.is_whole { rewritten(&object) } else { object }
    };
    let objects: Vec<_> = match &request.part {
        ExactPart::Page { after, .. } => {
            let objects = answers.cached.iter().map(form);
            objects.filter(|object| Some(&object.key) > after.as_ref()).collect()
        }
        ExactPart::Object(key) => {
            answers.etcd.get_key_value(key.name()).map(form).into_iter().collect()
        }
    };
    Ok(page(request.at.0, "", objects))
}

impl Checked {
    /// Writes an object upstream, of which the cache gets no event, but a bookmark after it.
    fn lose(&self, name: &str, version: u64) {
        let mut answers = self.answers.lock();
        answers.cached.insert(name.to_owned(), version);
        answers.etcd.insert(name.to_owned(), version);
        self.feed.send(vec![bookmark(version, false)]);
    }

    /// Lets a round pass. A new cache is due within a round of the task's first look at it, and the
    /// task finds that out at the look after.
    async fn round(&self) {
        tokio::time::sleep(ROUND + 3 * STEP).await;
    }

    fn outcomes(&self, outcome: &str) -> usize {
        let text = prometheus::TextEncoder::new().encode_to_string(&self.rig.metrics.gather());
        let label = format!("outcome=\"{outcome}\"");
        text.unwrap()
            .lines()
            .filter(|line| line.starts_with("weir_cache_checks_total{") && line.contains(&label))
            .filter_map(|line| line.rsplit_once(' ')?.1.parse::<usize>().ok())
            .sum()
    }

    fn wrong(&self) -> Option<WrongSide> {
        let caches = self.rig.registry.descriptions();
        caches.first()?.checks.difference.as_ref().map(|difference| difference.wrong)
    }
}

#[tokio::test(start_paused = true)]
async fn an_equal_cache_is_compared_once_in_a_round() {
    let checked = checked(VerifyMode::Enforce).await;
    for _ in 0..3 {
        checked.round().await;
    }
    assert!((2..=4).contains(&checked.outcomes("equal")), "{}", checked.outcomes("equal"));
    assert_eq!(checked.script.exacts.lock().len(), checked.outcomes("equal"));
    assert!(checked.rig.registry.descriptions()[0].checks.checked.is_some());
    assert_eq!(checked.wrong(), None);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_compared_unless_the_setting_says_so() {
    let checked = checked(VerifyMode::Off).await;
    checked.round().await;
    assert!(checked.script.exacts.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_wrong_cache_is_reported_and_kept_while_it_is_observed() {
    let checked = checked(VerifyMode::Observe).await;
    checked.lose("3", 1001);
    checked.round().await;
    assert_eq!((checked.outcomes("different"), checked.wrong()), (1, Some(WrongSide::Cache)));
    assert!(checked.rig.ready("configmaps", "").await.is_ok());
    assert!(!checked.rig.metric("weir_cache_quarantined"));
}

#[tokio::test(start_paused = true)]
async fn a_wrong_cache_is_quarantined_until_its_successor_was_checked_whole() {
    let checked = checked(VerifyMode::Enforce).await;
    let rig = &checked.rig;
    let handle = rig.ready("configmaps", "").await.unwrap();
    let mut watch = handle.cache().watch(WatchFilter::default(), WatchStart::Now).unwrap();
    checked.lose("3", 1001);
    eventually_every(STEP, "it is quarantined", || {
        let refused = rig.registry.running(&config_maps().gvr, "", Representation::Json).is_none();
        refused && rig.metric("weir_cache_quarantined{")
    })
    .await;
    assert_eq!(rig.registry.suspended().quarantined, [("configmaps".into(), "".into())]);
    assert!(matches!(watch.next_batch(1 << 20), Batch::Ended(EndCause::Wrong)));
    assert_eq!(rig.ready("configmaps", "").await.unwrap_err(), Refusal::Quarantined);
    let gvr = config_maps().gvr;
    let is_doubtful =
        |after| rig.registry.is_doubtful(&gvr, "", Representation::Json, ResourceVersion(after));
    assert!(is_doubtful(1000) && !is_doubtful(1001), "its client has listed since");
    let floor = rig.registry.inner.context.floors.get(&gvr, 0);
    assert_eq!(floor, Some(ResourceVersion(1001)), "its clients have seen as far");
    // It is listed again, and answers once it was checked.
    let feed = checked.script.on_watch();
    feed.send(vec![change("1", 1), change("2", 2), change("3", 1001), bookmark(1002, true)]);
    checked.answers.lock().error = Some(status(410, "gone"));
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(rig.ready("configmaps", "").await.unwrap_err(), Refusal::Quarantined);
    checked.answers.lock().error = None;
    eventually_every(STEP, "it answers", || {
        rig.registry.running(&gvr, "", Representation::Json).is_some()
    })
    .await;
    let handle = rig.ready("configmaps", "").await.unwrap();
    let held = handle.newest_state().unwrap();
    let versions: Vec<_> = held.store().iter().map(|object| object.resource_version.0).collect();
    assert_eq!(versions, [1, 2, 1001]);
    assert!(!rig.metric("weir_cache_quarantined{"));
    assert!(rig.registry.suspended().quarantined.is_empty());
    assert_eq!(checked.wrong(), Some(WrongSide::Cache), "the report stays");
    // A resourceVersion from which clients of the wrong cache resume is refused with 410.
    assert!(handle.is_lost(ResourceVersion(1000), WAIT).await);
    assert!(!handle.is_lost(ResourceVersion(1002), WAIT).await);
}

#[tokio::test(start_paused = true)]
async fn the_second_time_within_a_day_the_resource_is_forwarded_for_hours() {
    let checked = checked(VerifyMode::Enforce).await;
    let (rig, gvr) = (&checked.rig, config_maps().gvr);
    let runs = || rig.registry.running(&gvr, "", Representation::Json).is_some();
    checked.lose("3", 1001);
    eventually_every(STEP, "it is quarantined", || !runs()).await;
    let feed = checked.script.on_watch();
    feed.send(vec![change("1", 1), change("2", 2), change("3", 1001), bookmark(1002, true)]);
    eventually_every(STEP, "it answers", runs).await;
    let _handle = rig.ready("configmaps", "").await.unwrap();
    checked.answers.lock().cached.remove("1");
    checked.answers.lock().etcd.remove("1");
    eventually_every(STEP, "it is quarantined again", || !runs()).await;
    tokio::time::sleep(Duration::from_secs(6 * 3600 - 60)).await;
    assert!(rig.registry.inner.caches.len() == 0);
    checked.answers.lock().error = Some(status(410, "gone"));
    checked.script.keep(checked.script.on_watch_at(2000));
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(rig.registry.inner.caches.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_cache_is_kept_if_etcd_agrees_with_it() {
    let checked = checked(VerifyMode::Enforce).await;
    checked.answers.lock().cached.remove("2");
    checked.round().await;
    assert_eq!(checked.wrong(), Some(WrongSide::ApiServer));
    assert!(checked.outcomes("upstream") >= 1 && checked.outcomes("different") == 0);
    assert!(checked.rig.ready("configmaps", "").await.is_ok());
    assert!(!checked.rig.metric("weir_cache_quarantined{"));
    assert!(checked.script.moves.load(std::sync::atomic::Ordering::Relaxed) >= 1);
}

#[tokio::test(start_paused = true)]
async fn errors_prove_nothing() {
    for (code, outcome) in [(410, "inconclusive"), (504, "inconclusive"), (429, "refused")] {
        let checked = checked(VerifyMode::Enforce).await;
        checked.answers.lock().error = Some(status(code, "no"));
        checked.round().await;
        let count = checked.outcomes(outcome);
        assert!((1..=7).contains(&count), "{code}: {count}");
        assert_eq!(checked.wrong(), None);
        assert!(checked.rig.ready("configmaps", "").await.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn bytes_that_differ_count_once_they_have_differed_for_long() {
    let checked = checked(VerifyMode::Observe).await;
    checked.answers.lock().is_rewritten = true;
    eventually_every(STEP, "it was compared", || checked.outcomes("inconclusive") == 1).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(checked.wrong(), None);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(checked.wrong(), Some(WrongSide::Cache));
}

/// API servers of two versions may write the same objects in other bytes.
#[tokio::test(start_paused = true)]
async fn no_bytes_are_compared_while_the_upstream_has_two_versions() {
    let checked = checked(VerifyMode::Enforce).await;
    checked.answers.lock().is_rewritten = true;
    let set_mixed = |is_mixed| {
        checked.rig.source.version.send_modify(|version| {
            version.as_mut().unwrap().is_mixed = is_mixed;
        });
    };
    set_mixed(true);
    for _ in 0..5 {
        checked.round().await;
    }
    set_mixed(false);
    tokio::time::sleep(2 * ROUND).await;
    assert!(checked.outcomes("equal") >= 5, "their metadata are");
    assert_eq!((checked.outcomes("inconclusive"), checked.wrong()), (0, None));
    tokio::time::sleep(3 * ROUND).await;
    assert_eq!(checked.wrong(), Some(WrongSide::Cache));
}

/// Such as a page that is too large.
#[tokio::test(start_paused = true)]
async fn whole_objects_that_cannot_be_read_do_not_stop_the_comparison() {
    let checked = checked(VerifyMode::Enforce).await;
    let shared = Arc::clone(&checked.answers);
    *checked.script.exact.lock() = Some(Box::new(move |request: &ExactRequest| {
        let is_whole = request.is_whole && matches!(request.part, ExactPart::Page { .. });
        if is_whole { Err(UpstreamError::TooLong(1)) } else { answer(&shared.lock(), request) }
    }));
    checked.lose("3", 1001);
    for _ in 0..6 {
        checked.round().await;
    }
    assert_eq!(checked.wrong(), Some(WrongSide::Cache));
}

/// Such as those of a custom resource whose conversion is not stable.
#[tokio::test(start_paused = true)]
async fn bytes_that_prove_nothing_do_not_stop_the_comparison() {
    let checked = checked(VerifyMode::Enforce).await;
    checked.answers.lock().is_rewritten = true;
    let shared = Arc::clone(&checked.answers);
    *checked.script.exact.lock() = Some(Box::new(move |request: &ExactRequest| {
        let mut page = answer(&shared.lock(), request)?;
        if matches!(request.part, ExactPart::Object(_)) {
            page.objects = vec![object("1", 999)];
        }
        Ok(page)
    }));
    for _ in 0..6 {
        checked.round().await;
    }
    assert!(checked.outcomes("inconclusive") >= 4 && checked.outcomes("equal") >= 1);
    assert_eq!(checked.outcomes("different") + checked.outcomes("upstream"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_rewind_meanwhile_makes_a_difference_meaningless() {
    let checked = checked(VerifyMode::Enforce).await;
    let history = Arc::clone(&checked.rig.registry.inner.context.history);
    let shared = Arc::clone(&checked.answers);
    *checked.script.exact.lock() = Some(Box::new(move |request: &ExactRequest| {
        if matches!(request.part, ExactPart::Object(_)) {
            history.rewind();
        }
        answer(&shared.lock(), request)
    }));
    checked.lose("3", 1001);
    checked.round().await;
    assert_eq!(checked.outcomes("different"), 0);
    assert!(!checked.rig.metric("weir_cache_quarantined{"));
}
