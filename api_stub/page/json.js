// JSON whose seeds keep all 63 bits: a JavaScript number holds 53, so a longer seed is text here and digits on the wire.

// Neither pattern can match inside a string, where the quotes are escaped.
export const parse = (text) => JSON.parse(text.replace(/"seed":\s*(\d{16,})/g, '"seed":"$1"'));
export const toJson = (value, indent) => JSON.stringify(value, null, indent).replace(/"seed":(\s*)"(\d+)"/g, '"seed":$1$2');

/** Seed of the k-th output, exact at any length. */
export const seedPlus = (seed, k) => String(BigInt(seed) + BigInt(k));
