import { Stack, Text } from '@mantine/core';
import { useIsMutating } from '@tanstack/react-query';
import { useBlocker } from '@tanstack/react-router';
import { type ReactNode, useCallback, useEffect, useLayoutEffect, useMemo, useState } from 'react';
import { Dialog, DialogEnd } from '../../ui/Dialog.tsx';
import { returnFocus } from '../../ui/return-focus.ts';
import { isAnyUnsaved, UnsavedContext } from '../../ui/unsaved.ts';

type Place = { pathname: string; search: object };
const isSamePage = (one: Place, other: Place) =>
  one.pathname === other.pathname && JSON.stringify(one.search) === JSON.stringify(other.search);

/** Asks before unsaved input of the forms in it is lost: when a form is closed, the page is left, or the tab is closed. */
export function UnsavedGuard({ children }: { children: ReactNode }) {
  const [forms] = useState(() => new Map<string, () => boolean>());
  const [closing, setClosing] = useState<{ form: string; close: () => void }>();
  const isUnsaved = useCallback(() => isAnyUnsaved({ forms }), [forms]);
  const blocker = useBlocker({
    shouldBlockFn: useCallback(
      ({ current, next }: { current: Place; next: Place }) => isUnsaved() && !isSamePage(current, next),
      [isUnsaved],
    ),
    enableBeforeUnload: isUnsaved,
    withResolver: true,
  });
  const { proceed, reset } = blocker;
  const isAsking = closing !== undefined || blocker.status === 'blocked';
  const saves = useIsMutating();
  // A save that succeeds answers the question: its form is closed or has no other values any more.
  // biome-ignore lint/correctness/useExhaustiveDependencies: after each save
  useEffect(() => {
    if (!isAsking || isUnsaved()) return;
    setClosing(undefined);
    proceed?.();
  }, [saves]);
  // The dialog remembers the focus too late: it may have set it to its own button before.
  useLayoutEffect(() => {
    const field = document.activeElement;
    if (!isAsking) return;
    return () => returnFocus(field);
  }, [isAsking]);
  const keepEditing = useCallback(() => {
    // Escape reaches the dialog of the form next, which must not ask once more.
    setTimeout(() => {
      setClosing(undefined);
      reset?.();
    });
  }, [reset]);
  const discard = () => {
    setClosing(undefined);
    proceed?.();
    if (closing === undefined) return;
    // To close a form may change the address of the page.
    forms.delete(closing.form);
    closing.close();
  };
  const value = useMemo(
    () => ({
      forms,
      isAsking,
      // The same Escape may reach the question next, and would close it.
      ask: (form: string, close: () => void) => void setTimeout(() => setClosing({ form, close })),
      keepEditing,
    }),
    [forms, isAsking, keepEditing],
  );
  return (
    <UnsavedContext value={value}>
      {children}
      <Dialog
        opened={isAsking}
        onClose={keepEditing}
        title="Discard unsaved changes?"
        zIndex={250}
        returnFocus={false}
      >
        <Stack>
          <Text size="sm">You have entered values that are not saved.</Text>
          <DialogEnd
            act="Discard changes"
            cancel="Keep editing"
            attempt={{ isPending: false, isError: false, error: undefined }}
            button={{ color: 'red' }}
            onClose={keepEditing}
            onAct={discard}
          />
        </Stack>
      </Dialog>
    </UnsavedContext>
  );
}
