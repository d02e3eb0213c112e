// Small files in the format of MaxMind DB (maxmind.github.io/MaxMind-DB); testkit has the same for the tests in Rust.

/** What a field of this type begins with. */
const control = (kind, size) => (kind > 7 ? [size, kind - 7] : [(kind << 5) | size]);
const string = (text) => [...control(2, text.length), ...Buffer.from(text)];
const unsigned = (kind, number) => [...control(kind, 2), number >> 8, number & 255];
const map = (fields) => [...control(7, fields.length), ...fields.flatMap(([name, value]) => [...string(name), ...value])];

/** The bytes of a file that knows these networks of IPv4, of which none is in another: address, length, country. */
export function mmdb(networks) {
  const nodes = [[null, null]];
  const data = [];
  for (const [address, length, country] of networks) {
    const bits = address.split(".").map((part) => Number(part).toString(2).padStart(8, "0")).join("");
    // IPv4 addresses are at the beginning of the tree.
    const path = [..."0".repeat(96), ...bits.slice(0, length)].map(Number);
    const last = path.pop();
    let node = 0;
    for (const side of path) {
      if (nodes[node][side] === null) {
        nodes[node][side] = { node: nodes.length };
        nodes.push([null, null]);
      }
      node = nodes[node][side].node;
    }
    nodes[node][last] = { data: data.length };
    data.push(...map([["country", map([["iso_code", string(country)]])]]));
  }
  const number = (record) => record?.node ?? (record ? nodes.length + 16 + record.data : nodes.length);
  const tree = nodes.flat().map(number).flatMap((record) => [record >> 16, (record >> 8) & 255, record & 255]);
  const metadata = map([
    ["binary_format_major_version", unsigned(5, 2)], ["binary_format_minor_version", unsigned(5, 0)],
    ["build_epoch", unsigned(9, 1)], ["database_type", string("Test-Country")], ["description", map([])],
    ["ip_version", unsigned(5, 6)], ["languages", control(11, 0)],
    ["node_count", unsigned(6, nodes.length)], ["record_size", unsigned(5, 24)],
  ]);
  return Buffer.from([...tree, ...Array(16).fill(0), ...data, 0xab, 0xcd, 0xef, ...Buffer.from("MaxMind.com"), ...metadata]);
}
