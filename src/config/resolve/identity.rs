//! Validates `authentication` and `authorization`.
//!
//! In sidecar mode clients have no identity, so settings of identity would have no effect. They are
//! rejected, so that no operator relies on them.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::config::defaults;
use crate::config::file::{
    AuthenticationSection, AuthorizationSection, FrontProxySection, RbacSection,
    RequestHeaderSection, TokensSection,
};
use crate::config::parse::identity::{identity_header, identity_prefix};
use crate::config::resolve::problems::Collector;
use crate::config::{
    AuthenticationConfig, AuthorizationConfig, FrontProxyConfig, Mode, RbacConfig,
    RequestHeaderConfig,
};

/// Returns the mode, on which the validation of other settings depends.
pub(super) fn mode(section: &AuthenticationSection, problems: &mut Collector) -> Mode {
    let mut mode = Mode::default();
    problems.parsed("authentication.mode", section.mode.clone(), &mut mode);
    mode
}

/// Adds a problem for a setting that has no effect in sidecar mode.
pub(super) fn gateway_only(path: &str, problems: &mut Collector) {
    problems.add(
        path,
        "is for authentication.mode gateway; in sidecar mode clients are not authenticated",
    );
}

/// Validates `authentication`.
pub(super) fn authentication(
    section: AuthenticationSection,
    mode: Mode,
    problems: &mut Collector,
) -> AuthenticationConfig {
    let mut config = AuthenticationConfig { mode, ..AuthenticationConfig::default() };
    if mode == Mode::Sidecar {
        for (path, there) in [
            ("authentication.clientCAFile", section.client_ca_file.is_some()),
            ("authentication.requestHeader", section.request_header.is_some()),
            ("authentication.anonymous", section.anonymous.is_some()),
            ("authentication.tokens", section.tokens.is_some()),
            ("authentication.frontProxy", section.front_proxy.is_some()),
            ("authentication.impersonate", section.impersonate.is_some()),
        ] {
            if there {
                gateway_only(path, problems);
            }
        }
        return config;
    }
    config.client_ca = section.client_ca_file;
    config.request_header =
        section.request_header.and_then(|section| request_header(section, problems));
    problems.parsed("authentication.anonymous", section.anonymous, &mut config.anonymous);
    tokens(section.tokens.unwrap_or_default(), &mut config, problems);
    config.front_proxy = section.front_proxy.and_then(|section| front_proxy(section, problems));
    config.impersonate = section.impersonate.unwrap_or_default();
    if config.impersonate && config.front_proxy.is_some() {
        problems.add(
            "authentication.impersonate",
            "excludes authentication.frontProxy: a user is asserted in one way only",
        );
    }
    config
}

fn request_header(
    section: RequestHeaderSection,
    problems: &mut Collector,
) -> Option<RequestHeaderConfig> {
    let usual = |name: &str| vec![name.to_owned()];
    let path = |field: &str| format!("authentication.requestHeader.{field}");
    let mut headers = |field: &str, values: Option<Vec<String>>, default: &str| {
        let values = values.unwrap_or_else(|| usual(default));
        problems.list(&path(field), values, identity_header)
    };
    let username_headers =
        headers("usernameHeaders", section.username_headers, defaults::USERNAME_HEADER);
    let uid_headers = headers("uidHeaders", section.uid_headers, defaults::UID_HEADER);
    let group_headers = headers("groupHeaders", section.group_headers, defaults::GROUP_HEADER);
    let prefixes =
        section.extra_header_prefixes.unwrap_or_else(|| usual(defaults::EXTRA_HEADER_PREFIX));
    let extra_header_prefixes =
        problems.list(&path("extraHeaderPrefixes"), prefixes, identity_prefix);
    if username_headers.is_empty() {
        problems.add(path("usernameHeaders"), "needs at least one header");
    }
    let allowed_names =
        problems.list(&path("allowedNames"), section.allowed_names.unwrap_or_default(), not_empty);
    let Some(ca) = section.client_ca_file else {
        problems.add(
            path("clientCAFile"),
            "is missing: without it every client could act as a front proxy",
        );
        return None;
    };
    Some(RequestHeaderConfig {
        ca,
        allowed_names,
        username_headers,
        uid_headers,
        group_headers,
        extra_header_prefixes,
    })
}

fn tokens(section: TokensSection, config: &mut AuthenticationConfig, problems: &mut Collector) {
    if let Some(audiences) = section.audiences {
        config.token_audiences =
            problems.list("authentication.tokens.audiences", audiences, not_empty);
    }
    let (ttl, set) = (section.ttl, &mut config.token_ttl);
    problems.duration_between("authentication.tokens.ttl", ttl, TTL, set);
}

fn front_proxy(section: FrontProxySection, problems: &mut Collector) -> Option<FrontProxyConfig> {
    match (section.certificate_file, section.private_key_file) {
        (Some(certificate), Some(key)) => Some(FrontProxyConfig { certificate, key }),
        (certificate, key) => {
            for (field, there) in
                [("certificateFile", certificate.is_some()), ("privateKeyFile", key.is_some())]
            {
                if !there {
                    problems.add(format!("authentication.frontProxy.{field}"), "is missing");
                }
            }
            None
        }
    }
}

/// Validates `authorization`; `section` is `None` if the file does not have it.
pub(super) fn authorization(
    section: Option<AuthorizationSection>,
    mode: Mode,
    problems: &mut Collector,
) -> AuthorizationConfig {
    let mut config = AuthorizationConfig::default();
    let Some(section) = section else { return config };
    if mode == Mode::Sidecar {
        gateway_only("authorization", problems);
        return config;
    }
    for (path, value, bounds, set) in [
        ("authorization.allowTTL", section.allow_ttl, TTL, &mut config.allow_ttl),
        (
            "authorization.staleDecisionGrace",
            section.stale_decision_grace,
            GRACE,
            &mut config.stale_decision_grace,
        ),
    ] {
        problems.duration_between(path, value, bounds, set);
    }
    config.deny_ttl = config.allow_ttl.min(defaults::DENY_TTL);
    let (recheck, set) = (section.watch_recheck, &mut config.watch_recheck);
    problems.duration_or_never("authorization.watchRecheck", recheck, RECHECK, set);
    if let Some(reviews) = section.watch_reviews_per_second {
        if !WATCH_REVIEWS.contains(&reviews) {
            let (least, most) = (WATCH_REVIEWS.start(), WATCH_REVIEWS.end());
            let path = "authorization.watchReviewsPerSecond";
            problems.add(path, format!("must be between {least} and {most}"));
        }
        config.watch_reviews_per_second = reviews;
    }
    config.rbac = rbac(section.rbac.unwrap_or_default(), problems);
    config
}

fn rbac(section: RbacSection, problems: &mut Collector) -> Option<RbacConfig> {
    let check_one_in = section.check_one_in.unwrap_or(defaults::RBAC_CHECK_ONE_IN);
    if check_one_in == 0 {
        problems.add("authorization.rbac.checkOneIn", "must be more than zero");
    }
    section.enabled.unwrap_or_default().then_some(RbacConfig { check_one_in })
}

fn not_empty(text: String) -> Result<String, String> {
    if text.is_empty() { Err("must not be empty".to_owned()) } else { Ok(text) }
}

/// Decisions of the API server are cached for at most an hour; zero asks every time.
const TTL: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(3600);
/// An outage of more than a day needs a person.
const GRACE: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(24 * 3600);
/// With none, open watches would never be checked (that is `watchRecheck: never`); more than this
/// is more than one API server answers.
const WATCH_REVIEWS: RangeInclusive<u32> = 1..=10_000;
/// One review a second for each user and kind of access is the most that an API server should get;
/// an interval over a week would be no check at all.
const RECHECK: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(7 * 24 * 3600);
