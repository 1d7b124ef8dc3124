/** A name that anybody may have given: nothing of it may look like another line, or move the cursor. */
export function oneLine(name: string): string {
  return name.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, ' ');
}
