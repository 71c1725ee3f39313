//! The chart's schema of its value `config` is the one that `weir schema` prints, without what the
//! chart sets itself.

use std::fs;

use serde_json::{Map, Value, json};
use weir::config::schema::json_schema;

use crate::deploy;

/// `WEIR_WRITE=1 cargo test --test deploy schema` writes it.
#[test]
fn the_charts_schema_of_the_configuration_is_fresh() {
    let path = deploy("helm/weir/values.schema.json");
    let text = fs::read_to_string(&path).unwrap();
    let mut schema: Value = serde_json::from_str(&text).unwrap();
    schema["properties"]["config"] = of_the_chart();
    let fresh = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    if std::env::var_os("WEIR_WRITE").is_some() {
        fs::write(&path, fresh).unwrap();
        return;
    }
    assert!(text == fresh, "{} is stale: see this test", path.display());
}

fn of_the_chart() -> Value {
    let schema = json_schema();
    let mut sections = Map::clone(schema["properties"].as_object().unwrap());
    for set_by_the_chart in ["apiVersion", "kind"] {
        sections.shift_remove(set_by_the_chart).unwrap();
    }
    sections["server"]["properties"].as_object_mut().unwrap().shift_remove("listeners").unwrap();
    sections["admin"]["properties"].as_object_mut().unwrap().shift_remove("listen").unwrap();
    let authentication = &mut sections["authentication"];
    authentication["required"] = json!(["mode"]);
    authentication["properties"]["mode"]["enum"] = json!(["gateway"]);
    json!({
        "type": "object",
        "description": "Weir's configuration, as `weir schema` describes it, without what the chart sets.",
        "additionalProperties": false,
        "required": ["authentication"],
        "properties": sections,
    })
}
