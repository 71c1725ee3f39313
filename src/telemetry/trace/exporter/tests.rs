//! The exporter against a script of a collector, in virtual time.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::*;
use crate::telemetry::trace::queue::QUEUE_SPANS_MAX;
use crate::telemetry::trace::{FLUSH_TIMEOUT, SpanExport, Tracer};

/// Gives one response after another, and then accepts everything.
#[derive(Clone, Default)]
struct Script(Arc<Mutex<ScriptState>>);

#[derive(Default)]
struct ScriptState {
    /// `None` is no response at all.
    responses: VecDeque<Option<Attempt>>,
    /// When batches arrived, and the number of their spans.
    received: Vec<(Instant, usize)>,
}

impl Collect for Script {
    async fn post(&mut self, batch: Bytes) -> Attempt {
        let response = {
            let mut state = self.0.lock();
            let request = ExportTraceServiceRequest::decode(batch).unwrap();
            let scopes = request.resource_spans.iter().flat_map(|spans| &spans.scope_spans);
            state.received.push((Instant::now(), scopes.map(|scope| scope.spans.len()).sum()));
            state.responses.pop_front()
        };
        match response {
            None => Attempt::Accepted { rejected: 0, message: String::new() },
            Some(Some(attempt)) => attempt,
            Some(None) => std::future::pending().await,
        }
    }
}

impl Script {
    fn new(responses: impl IntoIterator<Item = Option<Attempt>>) -> Self {
        let state =
            ScriptState { responses: responses.into_iter().collect(), received: Vec::new() };
        Self(Arc::new(Mutex::new(state)))
    }

    fn sizes(&self) -> Vec<usize> {
        self.0.lock().received.iter().map(|(_, spans)| *spans).collect()
    }

    /// The seconds between attempts.
    fn pauses(&self) -> Vec<f64> {
        let received = &self.0.lock().received;
        received.windows(2).map(|pair| (pair[1].0 - pair[0].0).as_secs_f64()).collect()
    }
}

fn retry(after: Option<u64>) -> Option<Attempt> {
    Some(Attempt::Retry { cause: "status 503".to_owned(), after: after.map(Duration::from_secs) })
}

/// Records `spans` spans, and has them exported for ten minutes.
async fn export(script: &Script, spans: usize) -> (u64, u64, u64) {
    let tracer = Tracer::unexported(0);
    for _ in 0..spans {
        tracer.record(vec![Span::default()]);
    }
    let shared = tracer.0.clone().unwrap();
    let stop = CancellationToken::new();
    let exporter = Exporter::new(script.clone(), Arc::clone(&shared));
    let running = tokio::spawn(exporter.run(stop.clone()));
    tokio::time::sleep(Duration::from_secs(600)).await;
    stop.cancel();
    running.await.unwrap();
    shared.metrics.figures()
}

/// The end of Weir waits for a collector that hangs, but not for long.
#[tokio::test(start_paused = true)]
async fn spans_that_are_left_at_the_end_are_counted() {
    let script = Script::new([None]);
    let tracer = Tracer::unexported(0);
    let shared = tracer.0.clone().unwrap();
    let stop = CancellationToken::new();
    let mut task = tokio::task::JoinSet::new();
    task.spawn(Exporter::new(script.clone(), Arc::clone(&shared)).run(stop.clone()));
    for _ in 0..700 {
        tracer.record(vec![Span::default()]);
    }
    let began = Instant::now();
    SpanExport { shared: Arc::clone(&shared), task, stop }.close().await;
    assert_eq!(began.elapsed(), FLUSH_TIMEOUT);
    // 512 were on their way, and 188 waited.
    assert_eq!(script.sizes(), [512]);
    assert_eq!(shared.metrics.figures(), (0, 0, 700));
}

#[tokio::test(start_paused = true)]
async fn spans_are_sent_in_batches_and_a_full_queue_drops() {
    let script = Script::default();
    let (exported, dropped, failed) = export(&script, QUEUE_SPANS_MAX + 100).await;
    assert_eq!((exported, dropped, failed), (2_048, 100, 0));
    assert_eq!(script.sizes(), [BATCH_SPANS; 4]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_sent_again_after_growing_pauses() {
    let script = Script::new([retry(None), retry(None), retry(None), retry(None)]);
    assert_eq!(export(&script, 3).await, (3, 0, 0));
    assert_eq!(script.sizes(), [3; 5]);
    let pauses = script.pauses();
    assert_eq!(pauses.len(), 4);
    for (pause, seconds) in pauses.into_iter().zip([1.0, 2.0, 4.0, 8.0]) {
        assert!((seconds * 0.5..=seconds * 1.5 + 0.01).contains(&pause), "{pause} for {seconds}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_given_up_in_the_end_and_the_next_one_has_its_turn() {
    let script = Script::new((0..ATTEMPTS_MAX).map(|_| retry(None)));
    let spans = BATCH_SPANS + 2;
    assert_eq!(export(&script, spans).await, (2, 0, BATCH_SPANS as u64));
    assert_eq!(script.sizes(), [[BATCH_SPANS; 5].as_slice(), &[2]].concat());
}

#[tokio::test(start_paused = true)]
async fn the_collectors_pause_counts_within_bounds() {
    let script = Script::new([retry(Some(20)), retry(Some(86_400)), retry(Some(0))]);
    assert_eq!(export(&script, 1).await, (1, 0, 0));
    let pauses = script.pauses();
    assert!((20.0..20.1).contains(&pauses[0]), "{pauses:?}");
    assert!((60.0..60.1).contains(&pauses[1]), "{pauses:?}");
    assert!(pauses[2] >= 1.0, "a pause of zero is no reason to hurry: {pauses:?}");
}

#[tokio::test(start_paused = true)]
async fn a_collector_that_does_not_answer_costs_a_time_out() {
    let script = Script::new([None]);
    assert_eq!(export(&script, 1).await, (1, 0, 0));
    assert!(script.pauses()[0] >= 10.5, "{:?}", script.pauses());
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_or_rejected_is_counted_and_not_sent_again() {
    let refused = Some(Attempt::Refused("status 400".to_owned()));
    let script = Script::new([refused]);
    assert_eq!(export(&script, 4).await, (0, 0, 4));
    assert_eq!(script.sizes(), [4]);
    for (rejected, failed) in [(3, 3), (9, 4)] {
        let message = "two of them have no name".to_owned();
        let script = Script::new([Some(Attempt::Accepted { rejected, message })]);
        assert_eq!(export(&script, 4).await, (4 - failed, 0, failed));
        assert_eq!(script.sizes(), [4]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_waits_for_no_pause() {
    let script = Script::new((0..9).map(|_| retry(Some(60))));
    let tracer = Tracer::unexported(0);
    for _ in 0..3 * BATCH_SPANS {
        tracer.record(vec![Span::default()]);
    }
    let shared = tracer.0.clone().unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(Exporter::new(script.clone(), shared.clone()).run(stop.clone()));
    tokio::time::sleep(Duration::from_secs(5)).await;
    let stopped = Instant::now();
    stop.cancel();
    running.await.unwrap();
    assert_eq!(stopped.elapsed(), Duration::ZERO);
    assert_eq!(
        script.sizes(),
        [BATCH_SPANS; 4],
        "one attempt for each, and a second for the first"
    );
    assert_eq!(shared.metrics.figures(), (0, 0, 3 * BATCH_SPANS as u64));
    assert_eq!(shared.queue.clear(), 0);
}
