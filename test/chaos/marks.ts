/** What the marks of a sync's attempts tell: `<attempt>:begin` and `<attempt>:end`. Pure. */
export type Marks = { overlaps: string[]; attempts: number; abandoned: number };

/** Adds what is found in the marks of one connection, in the order in which they were committed. */
export function compareMarks(marks: readonly string[], found: Marks): void {
  let open: string | undefined;
  for (const mark of marks) {
    const [attempt = '', what] = mark.split(':');
    if (what === 'begin') {
      found.attempts += 1;
      if (open !== undefined) found.abandoned += 1;
      open = attempt;
    } else {
      if (open !== attempt)
        found.overlaps.push(`${attempt} wrote when ${open ?? 'another'} had begun or ended`);
      open = undefined;
    }
  }
}
