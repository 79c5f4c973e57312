//! Options as JSON: an object with a member for each option, by its name.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::map::Entry;
use serde_json::{Map, Value as Json};

use crate::InvalidOption;

/// Returns the options of the struct with their values.
pub fn to_object(options: &impl Serialize) -> Map<String, Json> {
    let value = serde_json::to_value(options).expect("options are texts, numbers and lists");
    if let Json::Object(members) = value { members } else { Map::new() }
}

/// Adds the given options to others: a list is appended, any other value replaces the earlier one, and null leaves it as it is.
/// `-` in a name stands for `_`.
pub fn add_options(options: &mut Map<String, Json>, given: Map<String, Json>) {
    for (name, value) in given.into_iter().filter(|(_, value)| !value.is_null()) {
        match (options.entry(name.replace('-', "_")), value) {
            (Entry::Vacant(place), value) => {
                place.insert(value);
            }
            (Entry::Occupied(mut place), value) => match (place.get_mut(), value) {
                (Json::Array(list), Json::Array(values)) => list.extend(values),
                (Json::Array(list), value) => list.push(value),
                (place, value) => *place = value,
            },
        }
    }
}

/// Sets the given options on top of the default ones, as [`add_options`] does. A single value stands for a list of one.
///
/// # Errors
/// When an option is unknown or has a wrong value.
pub fn set_options<T>(default: &T, given: Map<String, Json>) -> Result<T, InvalidOption>
where
    T: Serialize + DeserializeOwned,
{
    let default = to_object(default);
    let names: Vec<String> = given.keys().map(|name| name.replace('-', "_")).collect();
    if let Some(name) = names.iter().find(|name| !default.contains_key(*name)) {
        return Err(InvalidOption::Unknown { name: name.clone() });
    }
    let mut all = default.clone();
    add_options(&mut all, given);
    serde_json::from_value(Json::Object(all.clone())).map_err(|error| {
        // The error does not name the option, so each is tried alone.
        let is_wrong = |name: &&String| {
            let mut one = default.clone();
            one.extend(all.get(*name).map(|value| ((*name).clone(), value.clone())));
            serde_json::from_value::<T>(Json::Object(one)).is_err()
        };
        let name = names.iter().find(is_wrong).cloned().unwrap_or_default();
        InvalidOption::Value { name, reason: error.to_string() }
    })
}

/// Returns the options that differ from those of another struct.
pub fn changed_options(options: &impl Serialize, default: &impl Serialize) -> Map<String, Json> {
    let default = to_object(default);
    let mut changed = to_object(options);
    changed.retain(|name, value| default.get(name) != Some(value));
    changed
}
