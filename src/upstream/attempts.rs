//! The attempts to send a request: to one API server, or to others if one surely did not process
//! it.
//!
//! Two kinds of reads need more than any usable server. One that may show an older state goes to a
//! server that has caught up with its client's last one ([`Upstream::choose`]). One that a server
//! refused for its own load, or because it shuts down, goes to another one, once
//! ([`Upstream::read_elsewhere`]).

use std::pin::pin;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::select_ok;
use http::header::{RETRY_AFTER, USER_AGENT};
use http::uri::PathAndQuery;
use http::{Request, Response, StatusCode};
use tokio::time::Instant;

use crate::upstream::Upstream;
use crate::upstream::availability::is_gateway_error;
use crate::upstream::endpoints::catch_up::CatchUp;
use crate::upstream::endpoints::{ApiServer, Tried};
use crate::upstream::error::UpstreamError;
use crate::upstream::fetch::WEIR_USER_AGENT;
use crate::upstream::pool::{self, Attempt, Leaving, Left, SendError, Single};
use crate::upstream::pools::{LATE_AFTER, Route, is_of_core, is_overload};
use crate::upstream::replay::Replay;
use crate::upstream::request_body::{RequestBody, empty_body};
use crate::upstream::send_options::{Choice, SendOptions, TrafficClass};

impl Upstream {
    /// Checks over new connections whether an API server answers: the older ones may be dead.
    /// Returns the first answer, and a load balancer's only if there is no other.
    pub(crate) async fn check(&self) -> Result<StatusCode, UpstreamError> {
        let servers = self.endpoints().in_use();
        let checks: Vec<_> = servers.iter().map(|server| self.check_one(server).boxed()).collect();
        if checks.is_empty() {
            return Err(self.no_server());
        }
        let (mut answer, mut checks_left) = select_ok(checks).await?;
        while is_gateway_error(answer) && !checks_left.is_empty() {
            let Ok((next, rest)) = select_ok(checks_left).await else { break };
            (answer, checks_left) = (next, rest);
        }
        Ok(answer)
    }

    async fn check_one(&self, server: &Arc<ApiServer>) -> Result<StatusCode, UpstreamError> {
        let (route, mut connection) = self.single_to(server).await?;
        let mut request = self.authenticate(Request::new(empty_body())).await?;
        *request.uri_mut() = route.uri(Some(&PathAndQuery::from_static(CHECK_PATH)))?;
        request.headers_mut().insert(USER_AGENT, WEIR_USER_AGENT);
        let sent = connection.send(request).await.map_err(|failure| failure.error)?;
        Ok(sent.status())
    }

    /// Opens a connection of its own for requests in a row to one API server, which `choice` finds;
    /// not to `other_than`, if there is another one.
    pub(super) async fn single(
        &self,
        choice: &Choice,
        other_than: Option<u64>,
    ) -> Result<(Arc<Route>, Single), UpstreamError> {
        let choose = |tried: &[u64]| self.inner.pools.choose(choice, TrafficClass::Request, tried);
        let mut tried: Tried = other_than.into_iter().collect();
        if choose(&tried).is_none() {
            tried.clear();
        }
        let mut failed = None;
        while let Some(route) = choose(&tried) {
            match self.open(&route).await {
                Ok(single) => return Ok((route, single)),
                Err(error) => {
                    tried.push(route.server.key);
                    failed.get_or_insert(error);
                }
            }
        }
        Err(failed.unwrap_or_else(|| self.no_server()))
    }

    /// Opens a connection of its own for checks of one API server.
    pub(super) async fn single_to(
        &self,
        server: &Arc<ApiServer>,
    ) -> Result<(Arc<Route>, Single), UpstreamError> {
        let routes = self.inner.pools.routes().by_server.clone();
        let route = routes.into_iter().find(|route| Arc::ptr_eq(&route.server, server));
        let route = route.ok_or_else(|| self.no_server())?;
        let single = route.pool.single_for_check().await.map_err(|failure| failure.error)?;
        Ok((route, single))
    }

    async fn open(&self, route: &Route) -> Result<Single, UpstreamError> {
        route.single().await.map_err(|failure| {
            self.inner.metrics.error(failure.error.cause());
            failure.error
        })
    }

    pub(super) async fn send_until_processed(
        &self,
        class: TrafficClass,
        request: Request<RequestBody>,
        options: &SendOptions,
    ) -> Result<Response<pool::Body>, UpstreamError> {
        self.inner.retries.note_request(Instant::now());
        let path = request.uri().path_and_query().cloned();
        let mut tried = Tried::new();
        let choose = async |tried: &[u64]| self.choose(class, options, tried).await;
        let mut route = choose(&tried).await.ok_or_else(|| self.no_server())?;
        let mut request = self.authenticate(request).await?;
        *request.uri_mut() = route.uri(path.as_ref())?;
        let (mut request, replay) = Replay::new(request);
        // The loss of an attempt that was sent.
        let mut loss = None;
        let mut attempts = 1;
        let may_leave = || self.may_retry(options);
        loop {
            let is_first = attempts == 1;
            let leaving = Leaving { may_leave: &may_leave, is_first };
            let may_leave_now = options.is_read && attempts < ATTEMPTS_MAX;
            let attempt = Attempt { options, leaving: may_leave_now.then_some(leaving) };
            let sent = self.send_unless_hung(&route, class, request, attempt).await;
            let failure = match sent {
                Ok(response) if !is_refused_read(options, &route, path.as_ref(), &response) => {
                    return Ok(response);
                }
                Ok(response) => {
                    let again = replay.next_request().map(|request| (request, path));
                    let elsewhere = self.read_elsewhere(response, &route, class, again, options);
                    return Ok(Box::pin(elsewhere).await);
                }
                Err(failure) => failure,
            };
            let is_not_sent = failure.error.is_not_sent();
            // An error "not sent" lets a client send a request again.
            let give_up = |loss: Option<UpstreamError>, error| match loss {
                Some(loss) if is_not_sent => Err(loss),
                _ => Err(error),
            };
            let is_lost_read = options.is_read && failure.is_transport_failure();
            if !failure.unprocessed && !is_lost_read {
                return Err(failure.error);
            }
            if is_not_sent || failure.left == Some(Left::Server) {
                tried.push(route.server.key);
            }
            let mut next = choose(&tried).await;
            if is_not_sent && next.is_none() && attempts < ATTEMPTS_MAX {
                attempts += 1;
                tried.clear();
                // A failover takes less than a second.
                let returned = self.waits_for_return(options).await;
                next = if returned { choose(&tried).await } else { None };
            } else if !is_not_sent {
                attempts += 1;
                let may_retry = failure.left.is_some() || self.may_retry(options);
                if attempts > ATTEMPTS_MAX || !may_retry {
                    return give_up(loss, failure.error);
                }
            }
            let (Some(next), Some(again)) = (next, replay.next_request()) else {
                return give_up(loss, failure.error);
            };
            tracing::debug!(error = %failure.error, "the upstream did not process a request; sending it again");
            if !is_not_sent {
                loss = Some(failure.error);
            }
            (route, request) = (next, again);
            *request.uri_mut() = route.uri(path.as_ref())?;
        }
    }

    /// Chooses an API server other than the `tried` ones. For a read that may show an older state,
    /// it is one that has caught up with what the client's last one has shown, if there is any.
    async fn choose(
        &self,
        class: TrafficClass,
        options: &SendOptions,
        tried: &[u64],
    ) -> Option<Arc<Route>> {
        let first = self.inner.pools.choose(&options.choice, class, tried)?;
        match (&options.collection, &options.choice) {
            (Some(collection), Choice::Sticky(client)) if !first.is_only() => {
                let as_new = self.choose_as_new(first, class, options, tried, *client, collection);
                Some(Box::pin(as_new).await)
            }
            _ => Some(first),
        }
    }

    /// Returns the route to a server that has caught up: `first`, or another one that is not among
    /// the `tried` ones.
    async fn choose_as_new(
        &self,
        first: Arc<Route>,
        class: TrafficClass,
        options: &SendOptions,
        tried: &[u64],
        client: u64,
        collection: &Arc<str>,
    ) -> Arc<Route> {
        if self.has_caught_up(&first, client, collection).await {
            return first;
        }
        let pools = &self.inner.pools;
        let candidates = pools.all_but_calm(first.server.key);
        let next = candidates.and_then(|mut excluded| {
            excluded.extend_from_slice(tried);
            pools.choose(&options.choice, class, &excluded)
        });
        match next {
            Some(next) if self.has_caught_up(&next, client, collection).await => next,
            next => {
                self.endpoints().metrics().uncertain_reads.inc();
                next.unwrap_or(first)
            }
        }
    }

    /// Whether a server is as far with a collection as all servers were when the client was given
    /// it. Where Weir may not check that, it counts as being so.
    async fn has_caught_up(&self, route: &Route, client: u64, collection: &Arc<str>) -> bool {
        let server = &route.server;
        let since = self.endpoints().stays_since(client, server).unwrap_or_else(Instant::now);
        let reached = async {
            let mut reached = pin!(server.catch_ups.reached(collection, since));
            match tokio::time::timeout(LATE_AFTER, &mut reached).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    server.suspect();
                    reached.await
                }
            }
        };
        let caught_up = tokio::select! {
            biased;
            caught_up = reached => caught_up,
            () = server.until_out() => CatchUp::Failed,
        };
        matches!(caught_up, CatchUp::Reached | CatchUp::Unknown)
    }

    /// Sends a read that an API server refused to another one, which is usable and has not refused
    /// any lately. Returns the first response if there is none, or if that one
    /// fails too: the client learns when to come back.
    async fn read_elsewhere(
        &self,
        refused: Response<pool::Body>,
        route: &Route,
        class: TrafficClass,
        again: Option<(Request<RequestBody>, Option<PathAndQuery>)>,
        options: &SendOptions,
    ) -> Response<pool::Body> {
        let Some(excluded) = self.inner.pools.all_but_calm(route.server.key) else {
            return refused;
        };
        let Some((mut request, path)) = again else { return refused };
        if !self.may_retry(options) {
            return refused;
        }
        let Some(next) = self.choose(class, options, &excluded).await else { return refused };
        let Ok(uri) = next.uri(path.as_ref()) else { return refused };
        *request.uri_mut() = uri;
        let attempt = Attempt { options, leaving: None };
        match next.send(class, request, attempt).await {
            Ok(response) if is_failure(response.status()) => refused,
            Ok(response) => response,
            Err(_) => refused,
        }
    }

    /// Sends a request. If it is a read, and its API server is found to hang while another one is
    /// usable, gives it up: the other one can answer it. A write waits, since it may be processed.
    /// The watches of reflectors have a schedule of their own.
    async fn send_unless_hung(
        &self,
        route: &Route,
        class: TrafficClass,
        request: Request<RequestBody>,
        attempt: Attempt<'_>,
    ) -> Result<Response<pool::Body>, SendError> {
        let mut sending = pin!(route.send(class, request, attempt));
        let leaves = attempt.options.is_clients_read() || class == TrafficClass::Request;
        let leaving = attempt.leaving.filter(|_| leaves);
        let Some(leaving) = leaving.filter(|_| !route.is_only()) else {
            return sending.await;
        };
        let hangs = async {
            route.server.until_out().await;
            if !self.endpoints().is_any_usable() || !(leaving.may_leave)() {
                std::future::pending().await
            }
        };
        tokio::select! {
            biased;
            sent = &mut sending => sent,
            () = hangs => Err(SendError::hung(route.server.endpoint.to_string())),
        }
    }

    /// Waits after a failed dial until an API server answers, as long as the options allow. Returns
    /// whether one does.
    async fn waits_for_return(&self, options: &SendOptions) -> bool {
        let Some(deadline) = options.wait_until else { return false };
        let availability = &self.inner.availability;
        availability.suspect();
        availability.answered_after(Instant::now(), deadline).await
    }

    /// Takes a repetition from the budget. Reflectors have their own schedule.
    fn may_retry(&self, options: &SendOptions) -> bool {
        let may = matches!(options.choice, Choice::Pinned(_))
            || self.inner.retries.try_take(Instant::now());
        self.endpoints().metrics().retried(may);
        may
    }

    /// The error of a request for which there is no API server: each serves another cluster.
    fn no_server(&self) -> UpstreamError {
        let cause = "no API server serves the cluster of the upstream".to_owned();
        UpstreamError::Connect { address: self.address(), cause }
    }
}

/// Whether a response refuses a read for the load of its API server or because that one shuts
/// down, while there are others.
fn is_refused_read(
    options: &SendOptions,
    route: &Route,
    path: Option<&PathAndQuery>,
    response: &Response<pool::Body>,
) -> bool {
    let is_of_core = path.is_some_and(|path| is_of_core(path.path()));
    options.is_clients_read()
        && !route.is_only()
        && (is_overload(response, is_of_core) || is_shutting_down(response))
}

/// Whether an API server refuses a request because it shuts down and no longer accepts any:
/// `apiserver/pkg/server/filters/waitgroup.go`. Its body would have to be read to be sure; a read
/// that is refused for another reason is repeated once without need, within the budget.
fn is_shutting_down<B>(response: &Response<B>) -> bool {
    response.status() == StatusCode::SERVICE_UNAVAILABLE
        && response.headers().contains_key(RETRY_AFTER)
}

/// Whether a second API server did not answer either.
fn is_failure(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error()
}

/// The most attempts to send a request. An API server sends a GOAWAY with each response to an
/// unknown user, so that the next connection may get one, too.
const ATTEMPTS_MAX: usize = 3;
/// The path that a check requests. kube-apiserver's flow control never delays it.
const CHECK_PATH: &str = "/livez";
