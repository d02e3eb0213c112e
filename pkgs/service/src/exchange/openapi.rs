//! A page that shows an API's description to people, without scripts and without external resources.

use utoipa::openapi::path::Operation;
use utoipa::openapi::{OpenApi, RefOr};

/// Returns the page: one section per operation, with its purpose, parameters and answers. `json` is the path of the
/// description for programs.
pub fn page(description: &OpenApi, json: &str) -> String {
    let mut page = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>\
         <title>{title}</title><style>body{{font:16px/1.5 system-ui;max-width:50em;margin:2em auto;padding:0 1em}}\
         code{{background:#8882;padding:0 .2em}}section{{border-top:1px solid #8888}}</style>\
         <h1>{title} {version}</h1><p>{about}<p>The whole of it, for programs: <a href={json}>openapi.json</a>",
        title = escape(&description.info.title),
        version = escape(&description.info.version),
        about = escape(description.info.description.as_deref().unwrap_or_default()),
    );
    for (path, item) in &description.paths.paths {
        let operations = [
            ("GET", &item.get),
            ("POST", &item.post),
            ("PUT", &item.put),
            ("PATCH", &item.patch),
            ("DELETE", &item.delete),
        ];
        for (method, operation) in operations {
            if let Some(operation) = operation {
                section(&mut page, method, path, operation);
            }
        }
    }
    page
}

fn section(page: &mut String, method: &str, path: &str, operation: &Operation) {
    let text = |part: &Option<String>| escape(part.as_deref().unwrap_or_default());
    *page += &format!(
        "<section><h2><code>{method} {}</code></h2><p><b>{}</b><p>{}<ul>",
        escape(path),
        text(&operation.summary),
        text(&operation.description),
    );
    for parameter in operation.parameters.iter().flatten() {
        if let RefOr::T(parameter) = parameter {
            *page +=
                &format!("<li><code>{}</code> {}", escape(&parameter.name), text(&parameter.description));
        }
    }
    *page += "</ul><ul>";
    for (status, response) in &operation.responses.responses {
        if let RefOr::T(response) = response {
            *page += &format!("<li>{}: {}", escape(status), escape(&response.description));
        }
    }
    *page += "</ul></section>";
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
