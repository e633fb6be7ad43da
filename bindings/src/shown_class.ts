import { HeedError } from "./errors.js";

type Construct = (options: unknown, target: NewableFunction) => object;

/** A class as an instance shows it: made from options alone, and refused in words without `new`. */
export function shownClass<Constructor>(
  name: string,
  parent: NewableFunction,
  construct: Construct,
): Constructor {
  function shown(options: unknown): object {
    if (new.target === undefined) {
      throw new HeedError("option", `${name}: is a class: new heed.${name}(options)`);
    }
    return construct(options, new.target as unknown as NewableFunction);
  }
  Object.setPrototypeOf(shown, parent);
  const descriptor = { value: shown, writable: true, configurable: true };
  shown.prototype = Object.create(parent.prototype as object, { constructor: descriptor });
  Object.defineProperty(shown, "name", { value: name });
  return shown as unknown as Constructor;
}

/** Where a class names methods that are for its subclasses: no other side shows them. */
export const INTERNAL: unique symbol = Symbol("internal");
