//! The handling of a request: faults, identity, authorization, then the handler of its verb.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::upgrade::OnUpgrade;

use ::http::Response;

use super::answer::{self, Body};
use super::authorizer::{self, Attributes};
use super::faults::Action;
use super::flights::{Flight, InFlight};
use super::identity::{self, Identity};
use super::kinds::Kind;
use super::request::{Request, Target};
use super::request_log::LoggedRequest;
use super::shared::Shared;
use super::status::ApiError;
use super::{discovery, list, openapi, patch, pod, review, scale, token_request, watch, writes};

/// Answers a request. An error drops the connection or resets the stream.
pub(super) async fn route(
    shared: &Arc<Shared>,
    request: &Request,
    upgrade: OnUpgrade,
) -> Result<Response<Body>, io::Error> {
    let identity = identity::authenticate(request, shared);
    log(shared, request, identity.as_ref().map_or("", |identity| &identity.name));
    let (mut in_flight, is_over) = begin(shared, request, identity.as_ref().ok());
    let resource = request.target.as_ref().map_or("", |target| &target.resource);
    let mut faults = shared.faults.take(&request.verb(), resource);
    for fault in &faults {
        match fault {
            Action::Delay(time) => tokio::time::sleep(*time).await,
            Action::Hang => std::future::pending().await,
            Action::Reset => return Err(io::ErrorKind::ConnectionReset.into()),
            _ => {}
        }
    }
    faults.retain(|fault| !matches!(fault, Action::Delay(_)));
    let refusal = faults.iter().find_map(|fault| match fault {
        Action::Refuse(seconds) => Some(answer::refused(*seconds)),
        _ => None,
    });
    let refusal = refusal.or_else(|| is_over.then(|| answer::refused(RETRY_AFTER_SECONDS)));
    if refusal.is_none() && request.verb() != "watch" && !shared.options.service_time.is_zero() {
        tokio::time::sleep(shared.options.service_time).await;
    }
    let answer = match identity {
        Ok(identity) => match refusal {
            Some(refusal) => Ok(refusal),
            None => answer(shared, request, &identity, &faults, upgrade).await,
        },
        Err(error) => Err(error),
    };
    let mut answer = answer.unwrap_or_else(|error| answer::error(request, &error));
    for fault in &faults {
        if let Action::DelayAnswer(time) = fault {
            tokio::time::sleep(*time).await;
        }
    }
    for fault in &faults {
        if let Action::Alter(from, to) = fault {
            answer = alter(answer, from.clone(), to.clone());
        }
    }
    if let Some(warning) = identity::bearer_warning(&request.headers) {
        warn(&mut answer, warning);
    }
    // kube-apiserver ends the HTTP/2 connection of a request without a user (the feature gate
    // UnauthenticatedHTTP2DOSMitigation, `docs/semantics.md` §8.8).
    let is_refused =
        request.version == ::http::Version::HTTP_2 && identity::is_unauthenticated(request, shared);
    if is_refused || faults.contains(&Action::EndConnection) {
        answer::set(answer.headers_mut(), ::http::header::CONNECTION, "close");
    }
    in_flight.status = Some(answer.status().as_u16());
    Ok(answer)
}

/// Begins a request. Returns it, and whether its API server has too many in flight.
fn begin<'a>(
    shared: &'a Shared,
    request: &Request,
    identity: Option<&Identity>,
) -> (InFlight<'a>, bool) {
    let options = &shared.options;
    let is_exempt =
        options.open() || identity.is_none_or(authorizer::is_master) || request.verb() == "watch";
    let flight = Flight {
        user: identity.map_or_else(String::new, |identity| identity.name.clone()),
        user_agent: request.header("user-agent").to_owned(),
        audit_id: request.header("audit-id").to_owned(),
        verb: request.verb(),
        path: request.path.clone(),
        server: request.server,
        began: tokio::time::Instant::now(),
        ended: None,
        status: None,
    };
    let most = options.requests_max.filter(|_| !is_exempt);
    shared.log.flights.begin(flight, most, options.records_requests)
}

/// Replaces text in each chunk of a body.
fn alter(response: Response<Body>, from: String, to: String) -> Response<Body> {
    let alter = move |chunk: Bytes| {
        let mut chunk = chunk.to_vec();
        let places: Vec<_> = memchr::memmem::find_iter(&chunk, &from).collect();
        for place in places {
            if let Some(part) = chunk.get_mut(place..place + to.len()) {
                part.copy_from_slice(to.as_bytes());
            }
        }
        Bytes::from(chunk)
    };
    response.map(|body| body.map_frame(move |frame| frame.map_data(&alter)).boxed_unsync())
}

fn warn(response: &mut Response<Body>, text: &str) {
    if let Ok(value) = ::http::HeaderValue::from_bytes(format!("299 - \"{text}\"").as_bytes()) {
        response.headers_mut().append(::http::header::WARNING, value);
    }
}

fn log(shared: &Shared, request: &Request, user: &str) {
    let mut headers = request.headers.clone();
    headers.remove(::http::header::AUTHORIZATION);
    let resource = request.target.as_ref().map(|target| match target.subresource.as_str() {
        "" => target.resource.clone(),
        subresource => format!("{}/{subresource}", target.resource),
    });
    shared.log.add(LoggedRequest {
        method: request.method.to_string(),
        path: request.path.clone(),
        query: request.raw_query.clone(),
        verb: request.verb(),
        resource: resource.unwrap_or_default(),
        user: user.to_owned(),
        headers,
        connection: request.connection,
        server: request.server,
    });
}

async fn answer(
    shared: &Arc<Shared>,
    request: &Request,
    identity: &Identity,
    faults: &[Action],
    upgrade: OnUpgrade,
) -> Result<Response<Body>, ApiError> {
    injected(request, faults)?;
    let attributes = Attributes::from_request(request);
    let decision = authorizer::authorize(&shared.store, identity, &attributes);
    if !decision.allowed {
        return Err(authorizer::forbidden(identity, &attributes, &decision.reason));
    }
    if let Some(answer) = shared.aggregation.answer(&shared.store, request, &identity.name) {
        return answer;
    }
    // From 1.38 on, such a 404 is a Status (`docs/semantics.md` §14).
    let unknown = |error: ApiError| match shared.options.minor {
        38.. if error.plain && error.code == 404 && request.path.starts_with("/apis") => {
            ApiError::unknown_resource()
        }
        _ => error,
    };
    let Some(target) = &request.target else {
        return non_resource(shared, request).map_err(unknown);
    };
    let kind = find(shared, target).map_err(unknown)?;
    let response = if target.subresource.is_empty() {
        object(shared, request, identity, &kind, target, (faults, upgrade)).await
    } else {
        subresource(shared, request, &kind, target, upgrade).await
    };
    let Some(warning) = &kind.warning else { return response };
    // kube-apiserver adds the warning before the handler runs, so that errors have it, too. A
    // method that a built-in resource lacks has no handler.
    let mut response = response.or_else(|error| match error.code {
        405 if !kind.custom => Err(error),
        _ => Ok(answer::error(request, &error)),
    })?;
    // The handshake does not have the headers of ordinary responses (`docs/semantics.md` §6.3).
    if response.status() != ::http::StatusCode::SWITCHING_PROTOCOLS {
        warn(&mut response, warning);
    }
    Ok(response)
}

async fn object(
    shared: &Arc<Shared>,
    request: &Request,
    identity: &Identity,
    kind: &Arc<Kind>,
    target: &Target,
    (faults, upgrade): (&[Action], OnUpgrade),
) -> Result<Response<Body>, ApiError> {
    if kind.review {
        return match target.verb {
            "create" => review::create(shared, request, identity, kind, target),
            _ => Err(ApiError::method_not_allowed()),
        };
    }
    if request.method == ::http::Method::HEAD && !kind.custom {
        return Err(ApiError::method_not_allowed());
    }
    match target.verb {
        "get" => list::get(shared, request, kind, target).await,
        "list" => list::list(shared, request, kind, target).await,
        "watch" => watch::watch(shared, request, kind, target, faults, upgrade).await,
        "create" if target.name.is_empty() => writes::create(shared, request, kind, target),
        "update" if !target.name.is_empty() => writes::update(shared, request, kind, target),
        "patch" if !target.name.is_empty() => patch::patch(shared, request, kind, target),
        "delete" => writes::delete(shared, request, kind, target),
        "deletecollection" => writes::delete_collection(shared, request, kind, target),
        _ => Err(ApiError::method_not_allowed()),
    }
}

async fn subresource(
    shared: &Arc<Shared>,
    request: &Request,
    kind: &Arc<Kind>,
    target: &Target,
    upgrade: OnUpgrade,
) -> Result<Response<Body>, ApiError> {
    if !kind.has_subresource(&target.subresource) {
        return Err(if kind.custom {
            ApiError::not_found(&kind.group, &kind.resource, &target.name)
        } else {
            ApiError::unknown_resource()
        });
    }
    match (target.subresource.as_str(), target.verb) {
        ("status", "get") => list::get(shared, request, kind, target).await,
        ("status" | "finalize", "update") => writes::update(shared, request, kind, target),
        ("status", "patch") => patch::patch(shared, request, kind, target),
        ("scale", verb) => scale::scale(shared, request, kind, target, verb),
        ("token", "create") => token_request::request(shared, request, target),
        ("log", "get") => pod::log(shared, request, kind, target),
        ("exec" | "attach" | "portforward", "get" | "create") => {
            pod::upgrade(shared, request, kind, target, upgrade)
        }
        _ => Err(ApiError::method_not_allowed()),
    }
}

fn non_resource(shared: &Shared, request: &Request) -> Result<Response<Body>, ApiError> {
    let path = request.path.trim_end_matches('/');
    match path {
        "/readyz" if shared.servers.is_draining(request.server) => Ok(answer::plain(
            500,
            "[+]ping ok\n[-]shutdown failed: reason withheld\nreadyz check failed\n",
        )),
        "/healthz" | "/livez" | "/readyz" => Ok(answer::plain(200, "ok")),
        "/version" => Ok(discovery::version(shared, request)),
        "/openapi/v2" => openapi::v2(shared, request),
        _ if path.starts_with("/openapi/v3") => openapi::v3(shared, request, path),
        _ if path.starts_with("/api") => discovery::discovery(shared, request, path),
        _ => Err(ApiError::unknown_path()),
    }
}

/// Returns the kind of a path (`docs/semantics.md` §4.4).
fn find(shared: &Shared, target: &Target) -> Result<Arc<Kind>, ApiError> {
    let registry = shared.store.registry();
    let Some(kind) = registry.find(&target.group, &target.version, &target.resource) else {
        let custom = registry.kinds().iter().any(|kind| kind.custom && kind.group == target.group);
        let is_served = registry.has_version(&target.group, &target.version) && !custom;
        return Err(if is_served {
            ApiError::unknown_resource()
        } else {
            ApiError::unknown_path()
        });
    };
    let needs_namespace = kind.namespaced
        && target.namespace.is_empty()
        && (target.named_by_path || target.verb == "create");
    let refuses_namespace =
        !kind.namespaced && !target.namespace.is_empty() && kind.resource != "namespaces";
    match (needs_namespace || refuses_namespace, kind.custom) {
        (false, _) => Ok(kind),
        (true, true) => Err(ApiError::unknown_path()),
        (true, false) => Err(ApiError::unknown_resource()),
    }
}

/// Returns the injected error that is answered before anything else is examined.
fn injected(request: &Request, faults: &[Action]) -> Result<(), ApiError> {
    let watch = request.target.as_ref().is_some_and(|target| target.verb == "watch");
    for fault in faults {
        match fault {
            Action::TooManyRequests(seconds) => {
                let message = "storage is (re)initializing";
                let mut error = ApiError::new(429, "TooManyRequests", message);
                error.retry_after = Some(*seconds);
                return Err(error);
            }
            Action::Status(code) => {
                let reason = match code {
                    500 => "InternalError",
                    503 => "ServiceUnavailable",
                    _ => "",
                };
                return Err(ApiError::new(*code, reason, "injected failure"));
            }
            Action::Gone if !watch => {
                let message = "The resourceVersion for the provided list is too old.";
                return Err(ApiError::new(410, "Expired", message));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The seconds after which priority and fairness lets a refused client come back.
const RETRY_AFTER_SECONDS: u32 = 1;
