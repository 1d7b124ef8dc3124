/**
 * Freezes the objects that all runs of a process share: the modules and classes of Node that a bundle gets, everything that is
 * reachable from them, and the intrinsics of their realm. So a run can leave nothing there for the next one.
 *
 * A property of a frozen prototype could not be set on an instance (the "override mistake" of ECMAScript). Such properties
 * become accessors that set the property on the instance.
 */
import os from 'node:os';

/** The only properties of intrinsics that become accessors: others, such as an array's iterator, would slow the process. */
const overridden = new Set(['constructor', 'hasOwnProperty', 'message', 'name', 'toString', 'valueOf']);

export type Hardened = {
  /** The names of the `kept` objects that are reachable from the roots. They stay as they are. */
  reached: string[];
  /** Restores the few properties that can neither be frozen nor become accessors. Call it after each run. */
  restore(): void;
};

type SharedObjects = {
  /** Frozen with everything that is reachable from them. */
  roots: readonly unknown[];
  /** Of these and their values, only prototypes and functions are frozen. */
  instances: readonly unknown[];
  kept: Record<string, object>;
};

export function harden(given: SharedObjects): Hardened {
  const { found, prototypes, met, ofEcmaScript } = findShared(given);
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

/** The objects that the realms share, and which of them are prototypes. */
function findShared({ roots, instances, kept }: SharedObjects) {
  const keptNames = new Map(Object.entries(kept).map(([name, value]) => [value, name]));
  const met = new Set<string>();
  const found = new Set<object>();
  const own = new Set<object>();
  const prototypes = new Set<object>();
  const add = (value: unknown, to: Set<object>): void => {
    if (value === null || (typeof value !== 'object' && typeof value !== 'function')) return;
    const name = keptNames.get(value);
    if (name === undefined) to.add(value);
    else met.add(name);
  };
  const walked = new Set<object>();
  const walk = (target: object, visit: (value: unknown) => void): void => {
    if (walked.has(target)) return;
    walked.add(target);
    const heirOf: object | null = Object.getPrototypeOf(target);
    add(heirOf, found);
    // A class that another class extends counts too.
    if (typeof heirOf === 'object' && heirOf !== null) prototypes.add(heirOf);
    const { value: prototype } = Object.getOwnPropertyDescriptor(target, 'prototype') ?? {};
    if (prototype) prototypes.add(prototype);
    for (const key of Reflect.ownKeys(target)) {
      const { get, set, value } = Object.getOwnPropertyDescriptor(target, key)!;
      for (const code of [get, set]) add(code, found);
      visit(value);
    }
    if (target instanceof Map || target instanceof Set)
      for (const pair of target.entries()) for (const value of pair) visit(value);
  };
  const visit = (value: unknown) => add(value, found);
  const visitOwn = (value: unknown) => add(value, typeof value === 'function' ? found : own);

  const intrinsics = intrinsicsOfRealm();
  for (const root of [...intrinsics, ...roots]) visit(root);
  for (const instance of instances) visitOwn(instance);
  // These loops include the objects that they add.
  for (const target of own) walk(target, visitOwn);
  for (const target of found) {
    walked.delete(target);
    walk(target, visit);
  }
  for (const target of found) {
    walk(target, visit);
    // The value of a module's getter is reachable too. Getters of prototypes are for instances.
    if (!prototypes.has(target)) for (const value of gettersOf(target)) visit(value);
  }
  const ofEcmaScript = new Set<object>(intrinsics.filter((value) => typeof value !== 'function'));
  return { found, prototypes, met, ofEcmaScript };
}

/** Returns the properties that stay writable because they cannot become accessors. */
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
  return Reflect.ownKeys(target).flatMap((key) => {
    const { get } = Object.getOwnPropertyDescriptor(target, key)!;
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
    // Methods have no `prototype`, which would be an object that all runs share.
    const accessor = {
      get: () => value,
      set(this: object, next: unknown) {
        if (this === prototype) throw new TypeError(`${String(key)} is shared by all runs and cannot be set`);
        Object.defineProperty(this, key, {
          value: next,
          writable: true,
          enumerable: true,
          configurable: true,
        });
      },
    };
    Object.defineProperty(prototype, key, {
      get: Object.freeze(accessor.get),
      set: Object.freeze(accessor.set),
      enumerable: enumerable ?? false,
      configurable: false,
    });
  }
}

/** Removes setters: settings of modules would outlive the run. Returns those that stay, such as `EventEmitter.defaultMaxListeners`. */
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

/** The functions that `disarm` removes from `process`. */
const ofProcess = [
  '_debugEnd',
  '_debugProcess',
  '_getActiveHandles',
  '_getActiveRequests',
  '_kill',
  '_linkedBinding',
  '_startProfilerIdleNotifier',
  '_stopProfilerIdleNotifier',
  'abort',
  'binding',
  'chdir',
  'dlopen',
  'execve',
  'initgroups',
  'kill',
  'loadEnvFile',
  'mainModule',
  'report',
  'setegid',
  'seteuid',
  'setgid',
  'setgroups',
  'setuid',
  'umask',
];

/**
 * Removes what the permission model permits: signals to other processes, other priorities, ways around the module loader, and
 * the handles of the channel. Call it once, before any bundle is loaded. Code in the process cannot undo it.
 */
export function disarm(): void {
  for (const name of ofProcess) removeProperty(process, name);
  removeProperty(os, 'setPriority');
}

function removeProperty(target: object, name: string): void {
  Object.defineProperty(target, name, { value: undefined, writable: false, configurable: false });
}
