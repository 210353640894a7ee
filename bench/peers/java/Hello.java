// SPDX-License-Identifier: Apache-2.0

/** The least program: one virtual thread, waited for. */
final class Hello {
    public static void main(String[] args) throws InterruptedException {
        Thread.startVirtualThread(() -> { }).join();
    }
}
