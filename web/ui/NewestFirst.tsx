import { Button, Group } from '@mantine/core';
import type { ReactNode } from 'react';

/** Ways along a list that begins with the newest: back there, and to what is older; each where there is something. */
export function NewestFirst({
  onNewest,
  older,
}: {
  onNewest: (() => void) | undefined;
  /** The link to the next page, given the looks of a button. */
  older: ((looks: object) => ReactNode) | undefined;
}) {
  return (
    <Group justify="space-between">
      {onNewest === undefined ? (
        <span />
      ) : (
        <Button variant="default" onClick={onNewest}>
          To the newest
        </Button>
      )}
      {older !== undefined && (
        <Button variant="default" renderRoot={older}>
          Older
        </Button>
      )}
    </Group>
  );
}
