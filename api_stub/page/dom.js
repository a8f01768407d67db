// Elements from data. Everything from outside becomes text or an attribute value, never markup.

export const $ = (id) => document.getElementById(id);

/** `el("p", { class: "x", hidden: true, onclick: f, dataset: { a: 1 } }, "text", child)`; null children are left out. */
export function el(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value == null) continue;
    if (name === "class") element.className = value;
    else if (name === "dataset") Object.assign(element.dataset, value);
    else if (name.startsWith("on") || (name in element && !name.startsWith("aria") && name !== "list")) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child != null && child !== false));
  return element;
}

/** Rows of a description list; what is null or "" is left out. */
export function facts(entries) {
  return entries
    .filter(([, value]) => value != null && value !== "")
    .map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value instanceof Node ? value : String(value))));
}

/** Replace children only if the text would change, so that focus and selection survive. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A button whose first click asks "are you sure" in its own words, for 4 s. */
export function twoStep(text, question, action, props = {}) {
  let armed = null;
  const button = el("button", { type: "button", class: "quiet", ...props }, text);
  const disarm = () => {
    clearTimeout(armed);
    armed = null;
    button.textContent = text;
    button.classList.remove("armed");
  };
  button.addEventListener("click", () => {
    if (armed) {
      disarm();
      action(button);
      return;
    }
    button.textContent = question;
    button.classList.add("armed");
    armed = setTimeout(disarm, 4000);
  });
  return button;
}

const watched = new WeakMap();
const observer = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      observer.unobserve(target);
      watched.get(target)?.();
    }
  },
  { rootMargin: "300px" },
);

/** Call once when the element comes near the window. */
export function whenNear(element, action) {
  watched.set(element, action);
  observer.observe(element);
}
