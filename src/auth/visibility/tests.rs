//! The memory of users' views, and the end of a view.

use futures_util::FutureExt as _;
use tokio::time::advance;

use super::*;
use crate::auth::access_review::testing::{attributes, user};
use crate::auth::rbac::testing::TestRbac;

const PODS: &str = "/api/v1/pods";

fn view(rbac: &TestRbac, name: &str, groups: &[&str]) -> UserView {
    let visibility = Visibility::new(Arc::clone(&rbac.rbac));
    UserView::new(&visibility, &user(name, groups), &attributes(PODS), true).unwrap()
}

/// The newest versions of the collection and of the roles.
fn at(collection: u64, roles: u64) -> Option<Newest> {
    let [collection, roles] = [collection, roles].map(ResourceVersion);
    Some(Newest { collection, roles })
}

fn shown(view: &UserView, visible: &Visible) -> Vec<String> {
    let objects = view.seen(visible).as_ref().unwrap();
    objects.parts().map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn a_client_goes_on_only_from_what_it_saw() {
    let rbac = TestRbac::new();
    rbac.list();
    rbac.grant_in("a", "jane");
    let view = view(&rbac, "jane", &[]);
    // Nothing is remembered before a first list, nor by a look alone.
    for _ in 0..2 {
        let (visible, is_same) = view.visible(|| None).unwrap();
        assert!(!is_same && !visible.was_seen_at(ResourceVersion(100)));
    }
    let (visible, is_same) = view.visible(|| at(10, 12)).unwrap();
    assert_eq!((shown(&view, &visible), is_same), (vec!["a/".to_owned()], false));
    // A list at 11 may be of a time before the roles that are known.
    assert!(visible.was_seen_at(ResourceVersion(12)) && !visible.was_seen_at(ResourceVersion(11)));
    let (again, is_same) = view.visible(|| at(20, 20)).unwrap();
    assert!(is_same && again.was_seen_at(ResourceVersion(12)));
    // Grants of others change nothing.
    rbac.grant_in("b", "joe");
    assert!(view.visible(|| at(20, 20)).unwrap().1);
    rbac.grant_in("b", "jane");
    let (changed, is_same) = view.visible(|| at(30, 25)).unwrap();
    assert_eq!((shown(&view, &changed), is_same), (vec!["a/".to_owned(), "b/".to_owned()], false));
    let (changed, is_same) = view.visible(|| at(40, 40)).unwrap();
    assert!(is_same && changed.was_seen_at(ResourceVersion(31)));
    assert!(!changed.was_seen_at(ResourceVersion(30)));
    // A restored etcd begins with older versions.
    let (restored, is_same) = view.visible(|| at(5, 4)).unwrap();
    assert!(!is_same && restored.was_seen_at(ResourceVersion(5)));
    assert!(view.forget() && !view.forget());
}

#[tokio::test(start_paused = true)]
async fn a_view_ends_with_any_change_of_it() {
    let rbac = TestRbac::new();
    rbac.list();
    rbac.grant_in("a", "jane");
    let view = view(&rbac, "jane", &[]);
    let opened = || {
        let seen = view.visible(|| at(10, 10)).unwrap().0;
        Box::pin(view.clone().until_changed(seen, || at(10, 10), || true))
    };
    // A revocation ends it, also one that arrives while roles are not current.
    let mut watch = opened();
    assert!(watch.as_mut().now_or_never().is_none());
    rbac.grant_in("b", "joe");
    assert!(watch.as_mut().now_or_never().is_none());
    rbac.invalidate();
    rbac.revoke_in("a", "jane");
    assert!(watch.as_mut().now_or_never().is_none());
    rbac.validate();
    assert!(watch.as_mut().now_or_never().is_none(), "it looks four times a second at most");
    advance(LOOK_INTERVAL).await;
    assert!(watch.as_mut().now_or_never().is_some());
    // So does a grant of the whole.
    rbac.grant_in("a", "jane");
    let mut watch = opened();
    assert!(watch.as_mut().now_or_never().is_none());
    advance(LOOK_INTERVAL).await;
    rbac.grant("jane");
    assert!(watch.as_mut().now_or_never().is_some());
    rbac.revoke("jane");
    // And a minute in which nobody knows.
    let mut watch = opened();
    assert!(watch.as_mut().now_or_never().is_none());
    rbac.invalidate();
    assert!(watch.as_mut().now_or_never().is_none());
    // It is noticed within half a minute.
    for _ in 0..2 {
        advance(UNKNOWN_MAX / 2 + Duration::from_secs(1)).await;
        assert!(watch.as_mut().now_or_never().is_none());
    }
    advance(UNKNOWN_MAX / 2 + Duration::from_secs(1)).await;
    assert!(watch.as_mut().now_or_never().is_some());
}
