import { createContext, useContext, useEffect, useId } from 'react';

type UnsavedInput = {
  /** Whether each form has unsaved input now. */
  forms: Map<string, () => boolean>;
  /** The user is asked whether to discard the input. */
  isAsking: boolean;
  ask: (form: string, close: () => void) => void;
  keepEditing: () => void;
};

export const UnsavedContext = createContext<UnsavedInput>({
  forms: new Map(),
  isAsking: false,
  ask: (_form, close) => close(),
  keepEditing: () => {},
});

/** Whether one of the forms has unsaved input. */
export const isAnyUnsaved = ({ forms }: Pick<UnsavedInput, 'forms'>): boolean =>
  [...forms.values()].some((isUnsaved) => isUnsaved());

/**
 * While `isUnsaved`, the user is asked before the page is left. Returns a function that closes the form, and asks before if
 * it has unsaved input. Input that is being saved is unsaved until the save has succeeded; a form that then changes the page
 * navigates with `ignoreBlocker`.
 */
export function useUnsaved(isUnsaved: boolean | (() => boolean)): (close: () => void) => void {
  const { forms, isAsking, ask, keepEditing } = useContext(UnsavedContext);
  const form = useId();
  const check = typeof isUnsaved === 'function' ? isUnsaved : () => isUnsaved;
  useEffect(() => {
    forms.set(form, check);
    return () => void forms.delete(form);
  });
  return (close) => {
    // Escape reaches the dialog below, too.
    if (isAsking) keepEditing();
    else if (check()) ask(form, close);
    else close();
  };
}
