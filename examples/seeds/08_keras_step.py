"""A Keras step under GradientTape that deletes its loss and gradients."""
import tensorflow as tf


def main():
    model = tf.keras.Sequential([tf.keras.layers.Dense(64, activation="relu"), tf.keras.layers.Dense(10)])
    optimizer = tf.keras.optimizers.Adam()
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    for _ in range(10):
        x, y = tf.random.normal((32, 100)), tf.random.uniform((32,), 0, 10, tf.int32)
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        del loss, gradients


if __name__ == "__main__":
    main()
