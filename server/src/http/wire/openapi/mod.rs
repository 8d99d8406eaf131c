//! The description of every route, as it is served at `/openapi.json`.

#[cfg(test)]
mod tests;

#[cfg(test)]
use serde_json::{Map, Value};

/// The OpenAPI 3.1 document.
pub(crate) const OPENAPI: &str = include_str!("../../openapi.json");

/// A method in capitals and the path that it goes to, such as `("GET", "/v2/models/{model}")`.
#[cfg(test)]
pub(crate) type Operation = (String, String);

/// Every operation that [`OPENAPI`] describes, sorted by path and then method.
///
/// # Errors
/// The document is not JSON.
#[cfg(test)]
pub(crate) fn operations() -> Result<Vec<Operation>, serde_json::Error> {
    const METHODS: [&str; 8] = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];
    let document: Value = serde_json::from_str(OPENAPI)?;
    let paths = document.get("paths").and_then(Value::as_object);
    let of_path = |(path, item): (&String, &Value)| {
        let members = item.as_object().into_iter().flat_map(Map::keys);
        let methods = members.filter(|member| METHODS.contains(&member.as_str()));
        methods.map(|method| (method.to_uppercase(), path.clone())).collect::<Vec<_>>()
    };
    let mut operations: Vec<Operation> = paths.into_iter().flatten().flat_map(of_path).collect();
    operations.sort_by(|a, b| (&a.1, &a.0).cmp(&(&b.1, &b.0)));
    Ok(operations)
}
