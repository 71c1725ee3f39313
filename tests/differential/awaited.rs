//! Answers that the tables give to the cache and Weir does not give from it yet, by what they wait for. Until then such an answer must
//! be right, and may come from the upstream; how many do is printed. Each line goes with the change that makes it untrue.

use super::ask::{Ask, Token, Verb, Version, WatchForm};
use super::expected::form;
use super::forms::Form;

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Feature {
    /// Protobuf from a cache of its own.
    Protobuf,
    /// Metadata-only views.
    Metadata,
    /// Exact lists, limits and tokens from the history.
    Paging,
    /// `/watch/` paths.
    WatchPath,
    /// Watches over WebSockets.
    WebSocket,
    /// Watches and watch-lists with resourceVersion unset.
    Starts,
    /// Parameters and Accept headers beyond the plain ones.
    Negotiation,
    /// Discovery and OpenAPI from a revalidated cache.
    Discovery,
}

/// Those that are not there yet.
pub(crate) const AWAITED: &[Feature] = &[];

/// What an answer of the cache to this takes, if it is still awaited.
pub(crate) fn awaited(ask: &Ask) -> Option<Feature> {
    AWAITED.iter().copied().find(|feature| needs(ask, *feature))
}

fn needs(ask: &Ask, feature: Feature) -> bool {
    let limited = matches!(ask.limit, "1" | "2" | "500");
    match feature {
        Feature::Protobuf => matches!(form(ask), Form::Protobuf | Form::PartialProtobuf),
        Feature::Metadata => matches!(form(ask), Form::PartialJson | Form::PartialProtobuf),
        Feature::Paging => {
            ask.meaning() == Verb::List
                && (ask.matched == "Exact"
                    || ask.token != Token::None
                    || (limited && ask.version != Version::Zero))
        }
        Feature::WatchPath => {
            matches!(ask.verb, Verb::Watch(WatchForm::Path | WatchForm::PathAndParameter))
        }
        Feature::WebSocket => ask.verb == Verb::Watch(WatchForm::WebSocket),
        Feature::Starts => {
            matches!(ask.verb, Verb::Watch(_))
                && matches!(ask.version, Version::Unset | Version::Empty)
        }
        Feature::Negotiation => !ask.idle.is_empty() || !PLAIN_ACCEPTS.contains(&ask.accept.texts),
        Feature::Discovery => false,
    }
}

const PLAIN_ACCEPTS: [&[&str]; 3] = [&[], &["application/json"], &["*/*"]];
