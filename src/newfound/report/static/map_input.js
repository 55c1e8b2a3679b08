// Moving on the map: pointer, wheel, keys.

function nearestTo(x, y, within) {
  let best = null;
  let least = within * within;
  for (let i = 0; i < total; i += 1) {
    if (!isShown(i)) continue;
    const [px, py] = toPixels(i);
    const distance = (px - x) ** 2 + (py - y) ** 2;
    if (distance < least) [best, least] = [i, distance];
  }
  return best;
}

/** The next point in a direction: near, and rather straight ahead than aside. */
function nextTowards(dx, dy) {
  if (plane.at === null) return nearestTo(plane.canvas.clientWidth / 2, plane.canvas.clientHeight / 2, Infinity);
  const [x, y] = toPixels(plane.at);
  let best = plane.at;
  let least = Infinity;
  for (let i = 0; i < total; i += 1) {
    if (i === plane.at || !isShown(i)) continue;
    const [px, py] = toPixels(i);
    const ahead = (px - x) * dx + (py - y) * dy;
    const aside = Math.abs((px - x) * dy) + Math.abs((py - y) * dx);
    if (ahead <= 0.01 || aside > ahead * 1.2) continue;
    const cost = ahead + 2 * aside;
    if (cost < least) [best, least] = [i, cost];
  }
  return best;
}

function zoomBy(by, [fx, fy] = [plane.canvas.clientWidth / 2, plane.canvas.clientHeight / 2]) {
  const { clientWidth: w, clientHeight: h } = plane.canvas;
  const before = unit();
  plane.scale = by === 0 ? 1 : Math.min(40, Math.max(1, plane.scale * by));
  const after = unit();
  if (plane.scale === 1) [plane.x, plane.y] = [0.5, 0.5];
  else {
    // what is under the pointer stays there
    plane.x += (fx - w / 2) * (1 / before - 1 / after);
    plane.y += (fy - h / 2) * (1 / before - 1 / after);
  }
  plane.canvas.classList.toggle("zoomed", plane.scale > 1);
  measure();
  drawSoon();
}

function panBy(dx, dy) {
  plane.x = Math.min(1, Math.max(0, plane.x - dx / unit()));
  plane.y = Math.min(1, Math.max(0, plane.y - dy / unit()));
  measure();
  drawSoon();
}

function keepInView(i) {
  const [x, y] = toPixels(i);
  const { clientWidth: w, clientHeight: h } = plane.canvas;
  if (x < 20 || y < 20 || x > w - 20 || y > h - 20) panBy(w / 2 - x, h / 2 - y);
}

function listenToMap() {
  const { canvas } = plane;
  let pressed = null; // where a drag began, and whether it is one yet
  canvas.addEventListener("pointerdown", (event) => {
    pressed = { x: event.offsetX, y: event.offsetY, moved: false };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (pressed && plane.scale > 1 && event.buttons) {
      if (!pressed.moved && Math.hypot(event.offsetX - pressed.x, event.offsetY - pressed.y) < 4) return;
      panBy(event.offsetX - pressed.x, event.offsetY - pressed.y);
      pressed = { x: event.offsetX, y: event.offsetY, moved: true };
    } else if (event.pointerType === "mouse") pointTo(nearestTo(event.offsetX, event.offsetY, CLOSE));
  });
  canvas.addEventListener("pointerup", (event) => {
    const dragged = pressed?.moved;
    pressed = null;
    if (dragged) return;
    const i = nearestTo(event.offsetX, event.offsetY, CLOSE);
    // A first tap shows the point, a second one opens it; a mouse has seen it already.
    if (i !== null && (event.pointerType === "mouse" || plane.at === i)) openDetail(i, nearList(i));
    else pointTo(i);
  });
  canvas.addEventListener("pointerleave", (event) => {
    if (event.pointerType === "mouse") pointTo(null);
    pressed = null;
  });
  canvas.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // plain scrolling is the page's
      event.preventDefault();
      zoomBy(Math.exp(-event.deltaY / 200), [event.offsetX, event.offsetY]);
    },
    { passive: false },
  );
  canvas.addEventListener("keydown", mapKey);
  canvas.addEventListener("blur", () => pointTo(null));
}

function mapKey(event) {
  const ways = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key in ways) {
    pointTo(nextTowards(...ways[event.key]), true);
    if (plane.at !== null) keepInView(plane.at);
  } else if (event.key === "Enter" && plane.at !== null) openDetail(plane.at, nearList(plane.at));
  else if (event.key === "+" || event.key === "=") zoomBy(1.6);
  else if (event.key === "-") zoomBy(1 / 1.6);
  else if (event.key === "0") zoomBy(0);
  else return;
  event.preventDefault();
}

/** The images around one, nearest first: what the arrows of the detail go through. */
function nearList(i) {
  const far = (j) => (images.x[j] - images.x[i]) ** 2 + (images.y[j] - images.y[i]) ** 2;
  return images.file
    .map((_, j) => j)
    .filter(isShown)
    .map((j) => [far(j), j])
    .sort((a, b) => a[0] - b[0])
    .slice(0, 60)
    .map(([, j]) => j);
}
