// Unit tests of the rules in explorer.js; `node --test` runs them without a browser.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

const source = readFileSync(new URL("../../helpers/widgets/explorer.js", import.meta.url), "utf8");
const rules = await import(`data:text/javascript,${encodeURIComponent(source)}`);

const data = {
  axes: [{ values: ["1", "2"] }, { values: ["4", "8", "16"] }, { values: ["256", "1,024"] }, { values: ["float32"] }],
  map: [0, 1], sizes: [2, 3],
  kernels: [{ name: "mine", mapped: true }, { name: "torch", mapped: false }],
  gpus: [{ rows: { "0|1,2,0,0": { v: 5 }, "1|0,0": { v: 7 } } }],
};

test("a kernel that the sliders do not change has one row per size", () => {
  assert.equal(rules.rowKey(data, 0, [1, 2, 0, 0]), "0|1,2,0,0");
  assert.equal(rules.rowKey(data, 1, [1, 2, 0, 0]), rules.rowKey(data, 1, [0, 1, 0, 0]));
  assert.equal(rules.rowAt(data, 0, 1, [0, 1, 0, 0]).v, 7);
});

test("the dashed line is that of the dtype, and may be unknown", () => {
  const [line, other] = [{ v: 52, text: "52 TFLOP/s" }, { v: 766, text: "766 TFLOP/s" }];
  const two = { ...data, gpus: [{ ceilings: [line, other] }, { ceilings: [null, other] }] };
  assert.equal(rules.ceilingAt(two, 0, [0, 0, 0, 0]), line);
  assert.equal(rules.ceilingAt(two, 0, [0, 0, 0, 1]), other);
  assert.equal(rules.ceilingAt(two, 1, [0, 0, 0, 0]), null);
});

test("a cell of the map can be colored where its kernel has no bar", () => {
  assert.equal(rules.shadeOf({ v: 5 }), 5);
  assert.equal(rules.shadeOf({ v: null, shade: 25 }), 25);
  assert.equal(rules.shadeOf({ v: null }), null);
  assert.equal(rules.shadeOf(undefined), null);
});

test("only kernels without a row are requested", () => {
  assert.deepEqual(rules.missing(data, [0, 1], [1, 2, 0, 0]), []);
  assert.deepEqual(rules.missing(data, [0, 1], [0, 2, 0, 0]), [0]);
  assert.deepEqual(rules.missing(data, [0, 1], [0, 2, 1, 0]), [0, 1]);
});

test("the map has the largest value on top, and every cell knows its position", () => {
  const cells = rules.cellsOf(data, 0, 0, [0, 0, 0, 0]);
  assert.equal(cells.length, 3);
  assert.deepEqual(cells[0].map((cell) => cell.at), [[0, 2, 0, 0], [1, 2, 0, 0]]);
  assert.equal(cells[0][1].row.v, 5);
  assert.equal(cells[2][0].row, undefined);
});

test("colors lie between those of the scale, and text on them can be read", () => {
  assert.equal(rules.shade(["#000000", "#ffffff"], 0), "#000000");
  assert.equal(rules.shade(["#000000", "#ffffff"], 2), "#ffffff");
  assert.equal(rules.shade(["#000000", "#808080", "#ffffff"], 0.5), "#808080");
  assert.equal(rules.ink("#F0E442"), "#000000");
  assert.equal(rules.ink("#0072B2"), "#ffffff");
});

test("threads are numbered along x first", () => {
  // Element (9, 40) in blocks of 32 × 8: block (1, 1), thread (8, 1), warp 1, lane 8.
  assert.deepEqual(rules.place(9, 40, 32, 8), { block: [1, 1], thread: [8, 1], warp: 1, lane: 8 });
  assert.equal(rules.colorOf(rules.place(0, 31, 32, 8)), 7);
  assert.notEqual(rules.colorOf(rules.place(0, 32, 32, 8)), rules.colorOf(rules.place(0, 0, 32, 8)));
});

const lines = (...texts) => texts.map((text, i) => [i + 1, 1, text, 0]);

test("what is new ignores registers that were numbered anew", () => {
  const before = lines("add.s32 %r1, %r2, 3;", "ret;");
  const now = lines("add.s32 %r7, %r8, 3;", "mov.u32 %r1, 0;", "ret;");
  assert.deepEqual(rules.news("ptx", before, now), { added: new Set([1]), gone: 0 });
  assert.deepEqual(rules.news("ptx", null, now), { added: new Set(), gone: 0 });
});

test("addresses, reuse flags and labels of SASS do not count", () => {
  assert.equal(rules.essence("sass", "0010  FADD R1, R2.reuse, R3 ;"), rules.essence("sass", "0a30  FADD R7, R8, R9 ;"));
  assert.equal(rules.essence("ptx", "bra $L__BB0_3;"), rules.essence("ptx", "bra $L__BB0_17;"));
});

test("texts that are too long to align are counted", () => {
  const long = Array.from({ length: 600 }, (_, i) => [i, 1, `st.global [${i}];`, 0]);
  const other = Array.from({ length: 600 }, (_, i) => [i, 1, `st.global [${(i * 7) % 600 + (i === 5 ? 1000 : 0)}];`, 0]);
  const { added, gone } = rules.news("ptx", long, other);
  assert.deepEqual([added.size, gone], [1, 1]);
});

test("an alignment keeps both orders and loses no line", () => {
  const a = [..."the quick brown fox"], b = [..."a quick red fox jumps"];
  const pairs = rules.align(a, b);
  assert.deepEqual(pairs.filter(([i]) => i !== null).map(([i]) => i), a.map((_, i) => i));
  assert.deepEqual(pairs.filter(([, j]) => j !== null).map(([, j]) => j), b.map((_, j) => j));
  assert.ok(pairs.every(([i, j]) => i === null || j === null || a[i] === b[j]));
});

test("a diff pairs changed lines and counts each side", () => {
  const rows = rules.sideBySide(["FADD", "FMUL", "EXIT"], ["FADD", "FFMA", "STG", "EXIT"]);
  assert.deepEqual(rows, [[0, 0, "="], [1, 1, "~"], [null, 2, "+"], [2, 3, "="]]);
});

test("the opcode of a line is found", () => {
  assert.deepEqual(rules.opcodeOf("ptx", "@%p1 ld.global.v4.b32 {%r1}, [%rd1];"), ["@%p1 ", "ld.global.v4.b32", " {%r1}, [%rd1];"]);
  assert.deepEqual(rules.opcodeOf("sass", "0a0  @P0 LDG.E.128 R4, [R2] ;"), ["0a0  @P0 ", "LDG.E.128", " R4, [R2] ;"]);
  assert.deepEqual(rules.opcodeOf("source", "x = 1"), ["x = 1", "", ""]);
});

test("packed data is unpacked", async () => {
  const { deflateSync } = await import("node:zlib");
  assert.deepEqual(await rules.unpack(deflateSync(JSON.stringify({ a: 1 })).toString("base64")), { a: 1 });
});
