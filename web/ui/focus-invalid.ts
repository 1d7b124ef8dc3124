/** Moves the focus to the first field with an error, which scrolls it into view. Runs after the next render. */
export function focusInvalid(): void {
  requestAnimationFrame(() => document.querySelector<HTMLElement>('form [aria-invalid="true"]')?.focus());
}
