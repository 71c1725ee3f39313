//! Tests of what siblings get.

use super::*;
use crate::cache::registry::seed_refusal::SeedRefusal;

#[tokio::test(start_paused = true)]
async fn two_lists_are_encoded_at_once_and_others_are_refused() {
    let script = Arc::new(Script::default());
    let rig = Rig::new(config(), one(&script));
    let _feed = full(&script, 3);
    let _handle = rig.ready("configmaps", "").await.unwrap();
    let gvr = GroupVersionResource::new("", "v1", "configmaps");
    let refusal = async || {
        let source = rig.registry.seed_source(&gvr, "", Representation::Json).await;
        source.err()
    };
    let slots = Arc::clone(&rig.registry.inner.seeding.slots);
    let encoding = slots.clone().acquire_many_owned(2).await.unwrap();
    assert_eq!(refusal().await, Some(SeedRefusal::Busy));
    drop(encoding);
    // The release of the API server is not known here.
    assert_eq!(refusal().await, Some(SeedRefusal::Unidentified));
    assert_eq!(slots.available_permits(), 2, "a refusal holds none");
}
