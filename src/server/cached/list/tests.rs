//! Tests of the selection of a list's objects.

use std::time::Duration;

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

use super::*;
use crate::api::resource_version::ResourceVersion;
use crate::cache::core::watch_cache::{Change, Now, WatchCache, WindowLimits};
use crate::cache::script::object;
use crate::server::delegate::Freshness;
use crate::testing::config_maps;

const LIMITS: WindowLimits = WindowLimits {
    events_min: 100,
    events_max: 100,
    age: Duration::from_secs(75),
    bytes_max: 1 << 20,
    unread_from: u64::MAX,
    unread_bytes_max: 0,
};

/// Returns the token that etcd's path in the API server writes for the same key: it has no
/// leading slash.
fn from_etcd(token: &str) -> String {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let json = String::from_utf8(URL_SAFE_NO_PAD.decode(token).unwrap()).unwrap();
    URL_SAFE_NO_PAD.encode(json.replace(r#""start":"/"#, r#""start":""#))
}

proptest! {
    /// Tokens in the format of the cache and of etcd alternate, while objects come and go. The
    /// walk still shows each object of its state once.
    #[test]
    fn pages_return_each_object_of_one_state_once(
        names in btree_set("[a-c]{1,2}(-[a-c])?", 0..12),
        within in any::<bool>(),
        steps in vec((1..4_usize, any::<bool>(), "[a-c]{1,2}", any::<bool>()), 1..6),
    ) {
        let cache = WatchCache::new(LIMITS);
        let objects: Vec<_> = names.iter().map(|name| object(name, 5)).collect();
        cache.replace(objects, ResourceVersion(10));
        let namespace = within.then(|| "ns".into());
        let filter = WatchFilter { namespace, ..WatchFilter::default() };
        let (mut seen, mut revision) = (Vec::new(), 10);
        let mut plan = ListPlan {
            read_at: ReadAt::Newest(Freshness::Any),
            limit: None,
            start_key: None,
            collection_only: false,
        };
        for (limit, etcd, name, delete) in steps.iter().cycle() {
            plan.limit = NonZeroUsize::new(*limit);
            let state = cache.state().unwrap();
            let page = select(&config_maps(), &state, &filter, &plan, false).unwrap();
            prop_assert_eq!(page.meta.resource_version, ResourceVersion(10));
            seen.extend(page.objects.iter().map(|object| object.key.name().to_owned()));
            let token = page.meta.continue_token;
            if token.is_empty() {
                break;
            }
            let left = names.len() - seen.len();
            prop_assert_eq!(page.meta.remaining_item_count, Some(left as u64));
            let token = if *etcd { from_etcd(&token) } else { token };
            let token = ContinueToken::decode(&token).unwrap();
            (plan.read_at, plan.start_key) = (ReadAt::Exact(token.at.unwrap()), Some(token.from));
            revision += 1;
            let changed = object(name, revision);
            let change = if *delete { Change::Delete(changed) } else { Change::Upsert(changed) };
            cache.apply(vec![change], Now::default());
        }
        prop_assert_eq!(seen, names.into_iter().collect::<Vec<_>>());
    }
}
