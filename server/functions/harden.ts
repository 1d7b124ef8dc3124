/**
 * Freezes what all runs of a process share: the modules and classes of Node that a bundle is given, all they lead to, and
 * the intrinsics of their realm. So a run can leave nothing in them for the next, and a class of this realm is no lever.
 *
 * What is frozen must still be inherited from: a property that stands on a frozen prototype could not be set on an
 * instance (the "override mistake" of ECMAScript). Such properties become accessors that set it on the instance.
 */

/** Of the intrinsics only these: an accessor for others, like an array's iterator, would slow the whole process. */
const overridden = new Set(['constructor', 'hasOwnProperty', 'message', 'name', 'toString', 'valueOf']);

export type Hardened = {
  /** Which of `kept` the roots lead to, by name. They are left alone. */
  reached: string[];
  /** Puts back the few properties that can neither be frozen nor inherited from as accessors. To be called after each run. */
  restore(): void;
};

/** Freezes everything that the roots lead to. */
export function harden(roots: readonly unknown[], kept: Record<string, object>): Hardened {
  const keptNames = new Map(Object.entries(kept).map(([name, value]) => [value, name]));
  const met = new Set<string>();
  const seen = new Set<object>();
  const found: object[] = [];
  const visit = (value: unknown): void => {
    if (value === null || (typeof value !== 'object' && typeof value !== 'function') || seen.has(value))
      return;
    seen.add(value);
    const name = keptNames.get(value);
    if (name === undefined) found.push(value);
    else met.add(name);
  };
  const intrinsics = intrinsicsOfRealm();
  for (const root of [...intrinsics, ...roots]) visit(root);
  const prototypes = new Set<object>();
  const ofEcmaScript = new Set<object>(intrinsics.filter((value) => typeof value !== 'function'));
  for (let at = 0; at < found.length; at++) {
    const target = found[at]!;
    visit(Object.getPrototypeOf(target));
    for (const key of Reflect.ownKeys(target)) {
      const property = Object.getOwnPropertyDescriptor(target, key)!;
      visit(property.get);
      visit(property.set);
      visit('value' in property ? property.value : undefined);
      if (key === 'prototype' && property.value) prototypes.add(property.value);
    }
    // What lies behind a getter of a module is as much in reach as a property; prototypes have theirs for instances.
    if (!prototypes.has(target)) for (const value of gettersOf(target)) visit(value);
  }
  const left: { target: object; key: string | symbol; value: unknown }[] = [];
  for (const target of found) {
    if (ArrayBuffer.isView(target)) continue;
    if (!prototypes.has(target)) {
      for (const key of dropSetters(target)) left.push({ target, key, value: Reflect.get(target, key) });
      Object.freeze(target);
      continue;
    }
    allowOverrides(target, ofEcmaScript.has(target));
    // Such as `EventEmitter.prototype[kCapture]`, which each emitter sets on itself.
    for (const key of freezePrototype(target)) left.push({ target, key, value: Reflect.get(target, key) });
  }
  return {
    reached: [...met],
    restore: () => {
      for (const { target, key, value } of left)
        if (Reflect.get(target, key) !== value) Reflect.set(target, key, value);
    },
  };
}

/** Returns which properties stay writable, since they cannot become accessors. */
function freezePrototype(target: object): (string | symbol)[] {
  Object.preventExtensions(target);
  return Reflect.ownKeys(target).filter((key) => {
    const property = Object.getOwnPropertyDescriptor(target, key)!;
    if (!property.configurable) return property.writable === true;
    Object.defineProperty(target, key, {
      configurable: false,
      ...('value' in property && { writable: false }),
    });
    return false;
  });
}

function gettersOf(target: object): unknown[] {
  return Object.values(Object.getOwnPropertyDescriptors(target)).flatMap(({ get }) => {
    try {
      return get === undefined ? [] : [get.call(target)];
    } catch {
      return [];
    }
  });
}

function allowOverrides(prototype: object, isIntrinsic: boolean): void {
  for (const key of Reflect.ownKeys(prototype)) {
    const property = Object.getOwnPropertyDescriptor(prototype, key)!;
    if (!property.configurable || !property.writable) continue;
    if (isIntrinsic && !overridden.has(String(key))) continue;
    const { value, enumerable } = property;
    Object.defineProperty(prototype, key, {
      get: Object.freeze(() => value),
      set: Object.freeze(function set(this: object, next: unknown) {
        if (this === prototype) throw new TypeError(`${String(key)} is shared by all runs and cannot be set`);
        Object.defineProperty(this, key, {
          value: next,
          writable: true,
          enumerable: true,
          configurable: true,
        });
      }),
      enumerable: enumerable ?? false,
      configurable: false,
    });
  }
}

/** Settings of modules would outlive the run. Returns those that stay, like `EventEmitter.defaultMaxListeners`. */
function dropSetters(target: object): string[] {
  const settable = Object.entries(Object.getOwnPropertyDescriptors(target)).filter(([, { set }]) => set);
  return settable.flatMap(([key, { configurable }]) => {
    if (!configurable) return [key];
    Object.defineProperty(target, key, { set: undefined } as object);
    return [];
  });
}

function intrinsicsOfRealm(): object[] {
  const constructors = Reflect.ownKeys(globalThis)
    .map((key) => Object.getOwnPropertyDescriptor(globalThis, key))
    .map((property) => property?.value as unknown)
    .filter((value) => typeof value === 'function' && /^[A-Z]/.test(value.name) && isNative(value)) as (new (
    ...args: never[]
  ) => object)[];
  const prototypes = constructors.map(({ prototype }) => prototype as object | undefined);
  const hidden = [
    async () => {},
    function* () {},
    async function* () {},
    [][Symbol.iterator](),
    new Map()[Symbol.iterator](),
    new Set()[Symbol.iterator](),
    ''[Symbol.iterator](),
    ''.matchAll(/a/g),
    Uint8Array.prototype,
  ].map((value) => Object.getPrototypeOf(value) as object);
  const withPrototypes = hidden.flatMap((value) => {
    const inner = (value as { prototype?: object }).prototype;
    return inner === undefined ? [value] : [value, inner];
  });
  const namespaces = [JSON, Math, Reflect, Atomics, Intl];
  return [...constructors, ...prototypes, ...withPrototypes, ...namespaces].filter(
    (value) => value !== undefined,
  );
}

function isNative(value: unknown): boolean {
  return Function.prototype.toString.call(value).includes('[native code]');
}
