// The picture before there is one: soft shapes drawn from the job's seed, the same on every reload.

function random(text) {
  let state = 2166136261;
  for (const character of text) state = Math.imul(state ^ character.charCodeAt(0), 16777619);
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

export function drawLatent(canvas, text) {
  const next = random(text);
  const pen = canvas.getContext("2d");
  const { width, height } = canvas;
  const horizon = height * (0.45 + next() * 0.3);
  const sky = pen.createLinearGradient(0, 0, 0, height);
  sky.addColorStop(0, `rgba(40,34,32,${0.15 + next() * 0.5})`);
  sky.addColorStop(horizon / height, "rgba(40,34,32,.05)");
  sky.addColorStop(Math.min(1, horizon / height + 0.02), `rgba(30,24,22,${0.55 + next() * 0.3})`);
  sky.addColorStop(1, "rgba(20,16,15,.85)");
  pen.fillStyle = sky;
  pen.fillRect(0, 0, width, height);
  for (let index = 0; index < 9; index += 1) {
    const [x, y] = [next() * width, next() * height];
    const radius = (0.08 + next() * 0.3) * width;
    const light = next() > 0.55;
    const spot = pen.createRadialGradient(x, y, 0, x, y, radius);
    spot.addColorStop(0, light ? "rgba(255,250,244,.55)" : `rgba(18,12,11,${0.35 + next() * 0.4})`);
    spot.addColorStop(1, light ? "rgba(255,250,244,0)" : "rgba(18,12,11,0)");
    pen.fillStyle = spot;
    pen.fillRect(0, 0, width, height);
  }
}
