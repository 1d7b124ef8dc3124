import type { RecordAction } from './read/portion.ts';

export type Part = { id: string; x?: number; y?: number };
type ModelRecord = {
  seq: number;
  x: number | undefined;
  y: number | undefined;
  /** Whether `y` was ignored when it was written. */
  ignoresY: boolean;
  action: RecordAction;
  isPruned: boolean;
  changes: Changes;
};
/** The expected `changes` of a record; null if nothing is known of the last change. */
type Changes = { fields: string[]; previous: { x?: number; y?: number } | null } | null;

/** What the store promises of one dataset, in as few words as memory allows. The field `y` may be an ignored one. */
export class Model {
  lastSeq = 0;
  ignoresY = false;
  keepsPrevious = false;
  /** The guard: more than half of the records and more than two. */
  readonly massDeleteNumber = 2;
  readonly records = new Map<string, ModelRecord>();
  tracking: { from: number; named: Set<string> } | undefined;

  save(
    sent: readonly Part[],
    { restore, namesChanges }: { restore: 'always' | 'on_change'; namesChanges: boolean },
  ) {
    const result = {
      added: [] as string[],
      updated: [] as string[],
      restored: [] as string[],
      unchangedCount: 0,
    };
    const last = new Map<string, Part>();
    for (const part of sent) {
      last.delete(part.id);
      last.set(part.id, part);
    }
    for (const [id, { x, y }] of last) {
      this.tracking?.named.add(id);
      const known = this.records.get(id);
      const isLive = known !== undefined && known.action !== 'DELETED';
      if (isLive && this.isEqual(known, { x, y })) {
        result.unchangedCount += 1;
        if (known.isPruned && restore === 'always') {
          Object.assign(known, { isPruned: false, y, changes: null });
          result.restored.push(id);
        }
      } else {
        this.put(id, { x, y, action: isLive ? 'UPDATED' : 'ADDED', namesChanges });
        (isLive ? result.updated : result.added).push(id);
      }
    }
    const isTwice = (id: string) => sent.filter((part) => part.id === id).length > 1;
    return { ...result, duplicates: [...last.keys()].filter(isTwice).sort() };
  }

  update(sent: readonly Part[]) {
    const ids = [...new Set(sent.map(({ id }) => id))];
    const result = {
      updatedCount: 0,
      unchangedCount: 0,
      missing: [] as string[],
      deleted: [] as string[],
      pruned: [] as string[],
    };
    for (const id of ids) {
      this.tracking?.named.add(id);
      const known = this.records.get(id);
      if (known === undefined) result.missing.push(id);
      else if (known.action === 'DELETED') result.deleted.push(id);
      else if (known.isPruned) result.pruned.push(id);
      else {
        const parts = sent.filter((part) => part.id === id);
        let { x, y } = known;
        for (const part of parts) [x, y] = [part.x ?? x, part.y ?? y];
        if (x === known.x && (this.ignoresY || y === known.y)) result.unchangedCount += 1;
        else {
          this.put(id, { x, y, action: 'UPDATED', namesChanges: true });
          result.updatedCount += 1;
        }
      }
    }
    return result;
  }

  delete(sent: readonly string[]) {
    const ids = [...new Set(sent)];
    const live = ids.filter((id) => this.isLive(id));
    const alreadyDeleted = ids.filter((id) => this.records.get(id)?.action === 'DELETED');
    const missing = ids.filter((id) => !this.records.has(id));
    for (const id of live) this.bury(id);
    return { count: live.length, alreadyDeleted, missing };
  }

  start() {
    const isResumed = this.tracking !== undefined;
    this.tracking ??= { from: this.lastSeq, named: new Set() };
    return { isResumed };
  }

  end(override: 'none' | 'mass_delete') {
    if (this.tracking === undefined) return 'no_delete_tracking';
    const { from, named } = this.tracking;
    const live = this.inOrder().filter(([, { action }]) => action !== 'DELETED');
    const unseen = live.filter(([id, { seq }]) => seq <= from && !named.has(id)).map(([id]) => id);
    const isMass = unseen.length > this.massDeleteNumber && unseen.length > live.length / 2;
    if (isMass && override === 'none') return 'mass_delete_held';
    for (const id of unseen) this.bury(id);
    this.tracking = undefined;
    return { count: unseen.length, deletedKeys: unseen };
  }

  prune(until: number, limit: number) {
    const reached = this.inOrder().filter(([, { seq, isPruned }]) => seq <= until && !isPruned);
    for (const [, record] of reached.slice(0, limit))
      Object.assign(record, { isPruned: true, changes: null });
    return { count: Math.min(limit, reached.length), hasMore: reached.length > limit };
  }

  standingUpTo(until: number) {
    return this.inOrder().filter(([, { seq, isPruned }]) => seq <= until && !isPruned).length;
  }

  empty() {
    this.records.clear();
    this.tracking = undefined;
  }

  inOrder() {
    return [...this.records].sort(([, a], [, b]) => a.seq - b.seq);
  }

  private isLive(id: string) {
    return (this.records.get(id)?.action ?? 'DELETED') !== 'DELETED';
  }

  private isEqual(known: ModelRecord, { x, y }: Pick<ModelRecord, 'x' | 'y'>) {
    if (known.ignoresY !== this.ignoresY && known.isPruned) return false;
    return known.x === x && (this.ignoresY || known.y === y);
  }

  private put(
    id: string,
    given: {
      x: number | undefined;
      y: number | undefined;
      action: 'ADDED' | 'UPDATED';
      namesChanges: boolean;
    },
  ) {
    const { namesChanges, ...fields } = given;
    const changes = this.changesOf(this.records.get(id), given);
    this.lastSeq += 1;
    this.records.set(id, {
      ...fields,
      seq: this.lastSeq,
      ignoresY: this.ignoresY,
      isPruned: false,
      changes,
    });
  }

  private changesOf(
    known: ModelRecord | undefined,
    to: { x: unknown; y: unknown; namesChanges: boolean },
  ): Changes {
    if (known === undefined || known.action === 'DELETED' || known.isPruned) return null;
    const fields = (['x', 'y'] as const).filter((name) => known[name] !== to[name]);
    if (!this.keepsPrevious) return to.namesChanges ? { fields, previous: null } : null;
    const former = fields.flatMap((name) => (known[name] === undefined ? [] : [[name, known[name]]]));
    return { fields, previous: Object.fromEntries(former) };
  }

  private bury(id: string) {
    this.lastSeq += 1;
    Object.assign(this.records.get(id) as ModelRecord, { seq: this.lastSeq, action: 'DELETED' });
  }
}
